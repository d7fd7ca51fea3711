// One attempt of a request: where it runs, what comes of it, and what follows.
#include <algorithm>
#include <limits>

#include "dataplane/base/check.h"
#include "dataplane/conductor/conductor_core_impl.h"

namespace tidepool::conductor {
namespace {

// The part of `output` from its `skip`-th token on.
wire::RequestOutput WithoutFirst(const wire::RequestOutput& output,
                                 size_t skip) {
  wire::RequestOutput rest = output;
  if (skip == 0) return rest;
  rest.clear_prompt_logprobs();  // they came with the first token
  const int count = static_cast<int>(skip);
  rest.set_first_index(output.first_index() + static_cast<uint32_t>(skip));
  rest.mutable_tokens()->erase(rest.tokens().begin(),
                               rest.tokens().begin() + count);
  if (!rest.logprobs().empty()) {
    rest.mutable_logprobs()->DeleteSubrange(0, count);
  }
  return rest;
}

constexpr size_t kAttemptRecordsMax = 32;

// Whether it gives up the work of a decode worker, which is no failure.
bool Leaves(const Worker& worker) {
  return worker.state == Worker::State::kUp &&
         (worker.switching() || worker.role() != wire::ROLE_DECODE ||
          worker.status.load.draining());
}

}  // namespace

wire::RequestHeader ConductorCore::Impl::HeaderOf(const Request& request,
                                                  TimePoint now) const {
  wire::RequestHeader header;
  header.set_request_id(request.client.id);
  header.set_attempt(request.attempt);
  header.set_conductor_id(config_.conductor_id);
  header.set_conductor_incarnation(config_.incarnation);
  header.set_tenant(request.client.tenant);
  header.set_adapter(request.client.adapter);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      request.deadline - now);
  header.set_timeout_ms(static_cast<uint32_t>(std::clamp<int64_t>(
      left.count(), 1, std::numeric_limits<uint32_t>::max())));
  return header;
}

void ConductorCore::Impl::StartAttempt(Request& request,
                                       const scheduling::Placement& placement,
                                       TimePoint now) {
  CHECK(request.waiting && placement.placed());
  waiting_.erase(request.handle);
  request.waiting = false;
  ++request.attempt;
  request.progress_deadline = now + config_.progress_timeout;

  Worker& decode = workers_.at(*placement.decode);
  Worker* prefill =
      placement.prefill ? &workers_.at(*placement.prefill) : nullptr;
  const auto assign = [&](Worker& worker) {
    worker.requests.insert(request.handle);
    return Assignment{worker.status.id, worker.connection};
  };
  request.decode = assign(decode);
  decode.unplaced_tokens += request.context_tokens() + 1;
  request.counted_unplaced = true;
  if (prefill != nullptr) {
    request.prefill = assign(*prefill);
    prefill->recent_tokens += request.context_tokens();
  }

  wire::SessionRequest message;
  wire::SubmitRequest& submit = *message.mutable_submit();
  *submit.mutable_header() = HeaderOf(request, now);
  wire::GenerationRequest& generation = *submit.mutable_request();
  generation.mutable_tokens()->Add(request.client.prompt.begin(),
                                   request.client.prompt.end());
  generation.mutable_tokens()->Add(request.emitted.begin(),
                                   request.emitted.end());
  generation.set_prompt_tokens(
      static_cast<uint32_t>(request.client.prompt.size()));
  *generation.mutable_sampling() = request.client.sampling;
  // They went out with the first token.
  if (!request.emitted.empty()) {
    generation.mutable_sampling()->set_prompt_logprobs(-1);
  }
  generation.set_tenant_salt(request.client.tenant_salt);
  if (prefill != nullptr) {
    wire::DecodePeer& peer = *submit.mutable_decode_peer();
    peer.set_control_address(decode.status.address);
    peer.set_incarnation(decode.status.description.incarnation());
    peer.set_transfer_address(decode.status.description.transfer_address());
  }
  SendMessage(prefill != nullptr ? *prefill : decode, std::move(message));

  request.record.attempts.push_back(
      {.attempt = request.attempt,
       .prefill_worker = prefill != nullptr ? prefill->status.name : "",
       .decode_worker = decode.status.name,
       .placement_reason = placement.reason,
       .explanation = placement.explanation,
       .context_tokens = request.context_tokens(),
       .started = now});
  std::vector<AttemptRecord>& attempts = request.record.attempts;
  if (attempts.size() > kAttemptRecordsMax)
    attempts.erase(attempts.begin() + 1);
  Arm(request);
}

Request* ConductorCore::Impl::FindRunning(const std::string& id,
                                          uint32_t attempt,
                                          const Worker& worker) {
  const auto it = handles_.find(id);
  if (it == handles_.end()) return nullptr;
  Request& request = requests_.at(it->second);
  if (request.waiting || request.attempt != attempt ||
      !worker.requests.contains(request.handle)) {
    return nullptr;
  }
  return &request;
}

void ConductorCore::Impl::OnOutput(Worker& worker,
                                   const wire::RequestOutput& output,
                                   TimePoint now) {
  Request* request = FindRunning(output.request_id(), output.attempt(), worker);
  if (request == nullptr) {
    ++stats_.stale_outputs;
    if (output.finish_reason() != wire::FINISH_REASON_UNSPECIFIED) return;
    // Somebody works for nobody: after a lost cancel, or a late handover.
    wire::SessionRequest message;
    wire::RequestHeader& header = *message.mutable_cancel()->mutable_header();
    header.set_request_id(output.request_id());
    header.set_attempt(output.attempt());
    header.set_conductor_id(config_.conductor_id);
    header.set_conductor_incarnation(config_.incarnation);
    header.set_timeout_ms(1);
    message.mutable_cancel()->set_reason("stale attempt");
    return SendMessage(worker, std::move(message));
  }
  const size_t known = request->emitted.size();
  const size_t end = size_t{output.first_index()} + output.tokens_size();
  if (output.first_index() > known ||
      (output.logprobs_size() != 0 &&
       output.logprobs_size() != output.tokens_size())) {
    Exclude(*request, worker);
    return FailAttempt(
        *request,
        fmt::format("{}: output of tokens {} to {} came after {}",
                    worker.status.name, output.first_index(), end, known),
        now);
  }
  const bool finished =
      output.finish_reason() != wire::FINISH_REASON_UNSPECIFIED;
  if (end <= known && !finished) return;
  if (end < known) {  // finished before what another attempt emitted
    Exclude(*request, worker);
    return FailAttempt(*request,
                       fmt::format("{}: ended at token {}, {} are out already",
                                   worker.status.name, end, known),
                       now);
  }
  Emit(*request, output, known, now);
  if (finished) return End(*request, EndReason::kFinished, "", now);
  request->progress_deadline = now + config_.progress_timeout;
}

void ConductorCore::Impl::Emit(Request& request,
                               const wire::RequestOutput& output, size_t known,
                               TimePoint now) {
  wire::RequestOutput rest = WithoutFirst(output, known - output.first_index());
  request.emitted.insert(request.emitted.end(), rest.tokens().begin(),
                         rest.tokens().end());
  RequestRecord& record = request.record;
  record.output_tokens = static_cast<uint32_t>(request.emitted.size());
  if (known == 0) {
    record.first_token = now;
    record.cached_tokens = output.cached_tokens();
  }
  record.last_token = now;
  AttemptRecord& attempt = record.attempts.back();
  if (!attempt.first_output.has_value()) {
    attempt.first_output = now;
    request.overloads_in_a_row = 0;
    request.hand_backs_in_a_row = 0;
    request.identity = workers_.at(request.decode->worker).identity;
    MarkPlaced(request);
  }
  effects_.push_back(
      EmitOutput{.request_id = request.client.id, .output = std::move(rest)});
}

void ConductorCore::Impl::OnHandedOver(Worker& worker,
                                       const wire::HandedOver& handed_over,
                                       TimePoint now) {
  Request* request =
      FindRunning(handed_over.request_id(), handed_over.attempt(), worker);
  if (request == nullptr || !request->prefill.has_value() ||
      request->prefill->worker != worker.status.id) {
    return;
  }
  AttemptRecord& attempt = request->record.attempts.back();
  attempt.handed_over = now;
  attempt.transferred_bytes = handed_over.transferred_bytes();
  attempt.transport = handed_over.transport();
  request->progress_deadline = now + config_.progress_timeout;
  ReleasePrefill(*request);
  dispatch_ = true;
}

void ConductorCore::Impl::OnFailure(Worker& worker,
                                    const wire::RequestFailure& failure,
                                    TimePoint now) {
  Request* request =
      FindRunning(failure.request_id(), failure.attempt(), worker);
  if (request == nullptr) return;
  if (IsPastPrefill(*request, worker)) return ReleasePrefill(*request);
  const std::string why =
      fmt::format("{}: {}", worker.status.name, failure.message());
  switch (failure.kind()) {
    case wire::RequestFailure::KIND_INVALID:
      ReleaseWorkers(*request, true, now);
      return End(*request, EndReason::kInvalid, failure.message(), now);
    case wire::RequestFailure::KIND_EXPIRED:
      ReleaseWorkers(*request, true, now);
      return End(*request, EndReason::kExpired, "the request timed out", now);
    case wire::RequestFailure::KIND_DRAINING:
      return HandedBack(*request, why, now);
    case wire::RequestFailure::KIND_OVERLOADED:
    case wire::RequestFailure::KIND_PEER_OVERLOADED:
      request->waiting_for =
          failure.kind() == wire::RequestFailure::KIND_OVERLOADED &&
                  worker.status.description.role() == wire::ROLE_PREFILL
              ? scheduling::PlacementReason::kNoPrefillRoom
              : scheduling::PlacementReason::kNoDecodeRoom;
      return Overloaded(*request, why, now);
    case wire::RequestFailure::KIND_PEER:
      // A decode worker that leaves its role revokes what it has granted.
      if (Leaves(workers_.at(request->decode->worker))) {
        return HandedBack(*request, why, now);
      }
      Exclude(*request, workers_.at(request->decode->worker));
      // With several peers it is more likely this side's fault.
      if (++request->peer_failures > 1) Exclude(*request, worker);
      return FailAttempt(*request, why, now);
    default:
      Exclude(*request, worker);
      return FailAttempt(*request, why, now);
  }
}

bool ConductorCore::Impl::IsPastPrefill(const Request& request,
                                        const Worker& worker) const {
  return request.prefill.has_value() &&
         request.prefill->worker == worker.status.id &&
         request.record.attempts.back().first_output.has_value();
}

void ConductorCore::Impl::Exclude(Request& request, const Worker& worker) {
  request.excluded.insert(
      {worker.status.id, worker.status.description.incarnation()});
}

void ConductorCore::Impl::MarkPlaced(Request& request) {
  if (!request.counted_unplaced) return;
  request.counted_unplaced = false;
  workers_.at(request.decode->worker).unplaced_tokens -=
      request.record.attempts.back().context_tokens + 1;
}

void ConductorCore::Impl::ReleasePrefill(Request& request) {
  if (!request.prefill.has_value()) return;
  workers_.at(request.prefill->worker).requests.erase(request.handle);
  request.prefill.reset();
}

void ConductorCore::Impl::ReleaseWorkers(Request& request, bool cancel,
                                         TimePoint now) {
  if (request.waiting) return;
  MarkPlaced(request);
  for (const auto* assignment : {&request.prefill, &request.decode}) {
    if (!assignment->has_value()) continue;
    Worker& worker = workers_.at((*assignment)->worker);
    worker.requests.erase(request.handle);
    if (!cancel || worker.state != Worker::State::kUp ||
        worker.connection != (*assignment)->connection) {
      continue;
    }
    wire::SessionRequest message;
    *message.mutable_cancel()->mutable_header() = HeaderOf(request, now);
    message.mutable_cancel()->set_reason("attempt ended");
    SendMessage(worker, std::move(message));
  }
  request.prefill.reset();
  request.decode.reset();
  dispatch_ = true;
}

Duration ConductorCore::Impl::Backoff(uint32_t tries, Duration min,
                                      Duration max) {
  const Duration full =
      std::min(max, min * (int64_t{1} << std::min(tries, 16u)));
  return full / 2 +
         Duration(random_.Below(static_cast<uint64_t>(full.count())));
}

void ConductorCore::Impl::FailAttempt(Request& request, const std::string& why,
                                      TimePoint now) {
  ReleaseWorkers(request, true, now);
  AttemptRecord& record = request.record.attempts.back();
  record.failed = now;
  record.failure = why;
  if (++request.failed_attempts >= config_.max_attempts) {
    return End(request, EndReason::kAttemptsSpent,
               fmt::format("{} attempts failed, the last on {}",
                           request.failed_attempts, why),
               now);
  }
  ++stats_.retries;
  // The first retry is immediate: the client feels it as a pause.
  Wait(request,
       request.failed_attempts == 1
           ? Duration(0)
           : Backoff(request.failed_attempts, config_.overload_backoff_min,
                     config_.overload_backoff_max),
       now);
}

void ConductorCore::Impl::Overloaded(Request& request, const std::string& why,
                                     TimePoint now) {
  ReleaseWorkers(request, true, now);
  std::vector<AttemptRecord>& attempts = request.record.attempts;
  attempts.back().failed = now;
  attempts.back().failure = why;
  // Only the last of several in a row is kept.
  if (request.overloads_in_a_row > 0) attempts.erase(attempts.end() - 2);
  ++request.overloads_in_a_row;
  ++request.record.overloads;
  ++stats_.overloads;
  Wait(request,
       Backoff(request.overloads_in_a_row, config_.overload_backoff_min,
               config_.overload_backoff_max),
       now);
}

void ConductorCore::Impl::HandedBack(Request& request, const std::string& why,
                                     TimePoint now) {
  ReleaseWorkers(request, true, now);
  AttemptRecord& record = request.record.attempts.back();
  record.failed = now;
  record.failure = why;
  ++request.record.hand_backs;
  ++stats_.hand_backs;
  // The first retry is immediate: the client feels it as a pause. A worker that
  // takes requests only to give them back must not keep us busy, though.
  const uint32_t before = request.hand_backs_in_a_row++;
  Wait(request,
       before == 0 ? Duration(0)
                   : Backoff(before, config_.overload_backoff_min,
                             config_.overload_backoff_max),
       now);
}

void ConductorCore::Impl::Wait(Request& request, Duration backoff,
                               TimePoint now) {
  // To be refused for want of room is to go on waiting.
  if (request.overloads_in_a_row == 0) request.waiting_since = now;
  request.waiting = true;
  request.not_before = now + backoff;
  waiting_.insert(request.handle);
  dispatch_ = true;
  Arm(request);
}

}  // namespace tidepool::conductor
