// The prefill worker's side of a handover: Reserve when the prefill starts,
// slices while it computes, Commit last; Abort if anything goes wrong.
#include <algorithm>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"
#include "dataplane/worker/worker_core_impl.h"

namespace tidepool::worker {
namespace {

using Failure = wire::RequestFailure;

// The answer was lost, or never given: the call may be repeated.
bool IsTransient(const Status& error) {
  switch (error.code()) {
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kCancelled:
    case Code::kUnknown:
      return true;
    default:
      return false;
  }
}

Failure::Kind KindOfError(const Status& error, bool reserving) {
  switch (error.code()) {
    case Code::kResourceExhausted:
      return Failure::KIND_PEER_OVERLOADED;
    case Code::kInvalidArgument:
      return reserving ? Failure::KIND_INVALID : Failure::KIND_PEER;
    default:
      return Failure::KIND_PEER;
  }
}

}  // namespace

void WorkerCore::Impl::BeginHandover(Task& task,
                                     const engine::SequenceStep& step,
                                     TimePoint now) {
  Handover& handover = *task.handover;
  handover.started = true;
  handover.stream_open = true;
  const auto page_tokens =
      static_cast<int32_t>(config_.description.identity().page_tokens());
  const int32_t cached_pages = step.begin / page_tokens;
  if (cached_pages > 0) {
    effects_.push_back(AddFinalPages{
        {.stream = task.id,
         .first_page = 0,
         .pages = {step.pages.begin(), step.pages.begin() + cached_pages}}});
  }
  CallReserve(task, now);
}

// ---- Calls ----

void WorkerCore::Impl::Call(Task& task, PeerRequest request,
                            TimePoint deadline) {
  Handover& handover = *task.handover;
  CHECK(handover.call == 0);
  handover.call = next_call_++;
  ++handover.call_tries;
  handover.retry_at.reset();
  calls_[handover.call] = task.id;
  effects_.push_back(CallPeer{.call = handover.call,
                              .address = handover.peer.control_address(),
                              .request = std::move(request),
                              .deadline = deadline});
}

void WorkerCore::Impl::CallReserve(Task& task, TimePoint now) {
  wire::ReserveRequest request;
  *request.mutable_header() = task.header;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      task.deadline - now);
  request.mutable_header()->set_timeout_ms(
      static_cast<uint32_t>(std::max<int64_t>(1, left.count())));
  *request.mutable_request() = task.handover->request;
  *request.mutable_identity() = config_.description.identity();
  request.set_sender_incarnation(config_.description.incarnation());
  task.handover->peer_may_hold = true;
  Call(task, std::move(request),
       std::min(now + config_.peer_call_timeout, task.deadline));
}

void WorkerCore::Impl::CallCommit(Task& task, TimePoint now) {
  const Handover& handover = *task.handover;
  wire::CommitRequest request;
  *request.mutable_header() = task.header;
  request.set_capability_id(handover.reserved->capability().capability_id());
  request.set_digest(transfer::DigestOf(handover.checksums));
  *request.mutable_first_output() = *handover.first_output;
  Call(task, std::move(request),
       std::min(now + config_.peer_call_timeout, task.deadline));
}

void WorkerCore::Impl::CallAbort(Task& task, TimePoint now) {
  wire::AbortRequest request;
  *request.mutable_header() = task.header;
  if (task.handover->reserved.has_value()) {
    request.set_capability_id(
        task.handover->reserved->capability().capability_id());
  }
  request.set_reason("the handover ended at its sender");
  Call(task, std::move(request), now + config_.peer_call_timeout);
}

void WorkerCore::Impl::RepeatCall(Task& task, TimePoint now) {
  Handover& handover = *task.handover;
  handover.retry_at.reset();
  ++stats_.peer_retries_total;
  if (task.ended) {
    CallAbort(task, now);
  } else if (handover.stream_closing) {
    CallCommit(task, now);
  } else {
    CallReserve(task, now);
  }
}

void WorkerCore::Impl::OnPeerReply(PeerCallId call,
                                   const StatusOr<PeerResponse>& response,
                                   TimePoint now) {
  const auto it = calls_.find(call);
  if (it == calls_.end()) return;
  Task& task = tasks_.at(it->second);
  Handover& handover = *task.handover;
  calls_.erase(it);
  handover.call = 0;
  if (!response.ok()) return OnPeerError(task, response.status(), now);
  handover.call_tries = 0;
  if (std::holds_alternative<wire::AbortResponse>(*response)) {
    handover.peer_may_hold = false;
    return End(task, now);
  }
  if (task.ended) return End(task, now);
  if (const auto* reserved = std::get_if<wire::ReserveResponse>(&*response)) {
    return OnReserved(task, *reserved, now);
  }
  handover.committed = true;
  handover.peer_may_hold = false;
  ++stats_.handed_over_total;
  wire::SessionResponse message;
  wire::HandedOver& told = *message.mutable_handed_over();
  told.set_request_id(task.header.request_id());
  told.set_attempt(task.header.attempt());
  told.set_transferred_bytes(handover.checksums.size() * config_.slice_bytes);
  told.set_prefill_tokens(handover.prefill_tokens);
  told.set_cached_tokens(handover.first_output->cached_tokens());
  told.set_transport(handover.transport);
  Send(task.session, std::move(message));
  End(task, now);
}

void WorkerCore::Impl::OnPeerError(Task& task, const Status& error,
                                   TimePoint now) {
  Handover& handover = *task.handover;
  // A call from before the end; the abort is still to come.
  if (task.ended && handover.call_tries == 0) return End(task, now);
  if (IsTransient(error) && handover.call_tries < config_.peer_call_attempts) {
    handover.retry_at = now + config_.peer_retry_backoff *
                                  (int64_t{1} << (handover.call_tries - 1));
    return Arm(task);
  }
  if (task.ended) {
    // An abort that got through to nobody: the reservation expires by itself.
    handover.peer_may_hold = false;
    return End(task, now);
  }
  handover.call_tries = 0;
  const bool reserving = !handover.stream_closing;
  // What refused the reservation holds none.
  if (reserving && !IsTransient(error) && !handover.reserved.has_value()) {
    handover.peer_may_hold = false;
  }
  Fail(task, KindOfError(error, reserving),
       fmt::format("{} to {}: {}", reserving ? "reserve" : "commit",
                   handover.peer.control_address(), MessageOf(error)),
       now);
}

// ---- Reserved ----

Status WorkerCore::Impl::CheckReserved(
    const Task& task, const wire::ReserveResponse& response) const {
  const Handover& handover = *task.handover;
  const wire::ModelIdentity& identity = config_.description.identity();
  const wire::TransferCapability& capability = response.capability();
  if (capability.incarnation() != handover.peer.incarnation()) {
    return FailedPrecondition("the decode worker restarted");
  }
  const auto tokens = static_cast<uint32_t>(handover.request.tokens_size());
  const uint32_t page_tokens = identity.page_tokens();
  if (response.present_tokens() % page_tokens != 0 ||
      response.present_tokens() >= tokens) {
    return InvalidArgument("present_tokens {} of {} with pages of {}",
                           response.present_tokens(), tokens, page_tokens);
  }
  const uint32_t pages =
      CeilDiv(tokens, page_tokens) - response.present_tokens() / page_tokens;
  if (static_cast<uint32_t>(capability.page_ids_size()) != pages ||
      capability.num_layers() != identity.num_layers() ||
      capability.slice_bytes() != config_.slice_bytes) {
    return InvalidArgument(
        "capability for {} pages, {} layers, slices of {} bytes; needed are "
        "{}, {}, {}",
        capability.page_ids_size(), capability.num_layers(),
        capability.slice_bytes(), pages, identity.num_layers(),
        config_.slice_bytes);
  }
  return OkStatus();
}

void WorkerCore::Impl::OnReserved(Task& task,
                                  const wire::ReserveResponse& response,
                                  TimePoint now) {
  Handover& handover = *task.handover;
  const Status valid = CheckReserved(task, response);
  if (!valid.ok()) {
    return Fail(task, Failure::KIND_PEER,
                fmt::format("reserve at {}: {}",
                            handover.peer.control_address(), MessageOf(valid)),
                now);
  }
  handover.renew_at =
      now +
      std::chrono::milliseconds(response.capability().expires_in_ms()) / 3;
  Arm(task);
  if (handover.reserved.has_value()) {  // renewed
    if (response.capability().capability_id() !=
        handover.reserved->capability().capability_id()) {
      return Fail(task, Failure::KIND_PEER, "the reservation was replaced",
                  now);
    }
    return TryCommit(task, now);
  }
  handover.reserved = response;
  handover.checksums.resize(size_t{response.capability().num_layers()} *
                            response.capability().page_ids_size());
  auto target = std::make_shared<StreamTarget>();
  target->stream = task.id;
  target->capability = response.capability();
  target->transfer_address = response.transfer_address();
  target->first_page =
      response.present_tokens() / config_.description.identity().page_tokens();
  effects_.push_back(OpenStream{.target = std::move(target)});
}

void WorkerCore::Impl::OnSlicesSent(const SlicesSent& sent, TimePoint now) {
  const auto it = tasks_.find(sent.stream);
  if (it == tasks_.end() || it->second.ended) return;
  Task& task = it->second;
  Handover& handover = *task.handover;
  if (!sent.ok) {
    return Fail(task, Failure::KIND_PEER,
                fmt::format("transfer to {}: {}",
                            handover.reserved->transfer_address(), sent.error),
                now);
  }
  const auto row =
      static_cast<size_t>(handover.reserved->capability().page_ids_size());
  const auto layers = static_cast<size_t>(sent.layer_end - sent.layer_begin);
  const size_t pages = sent.checksums.size() / layers;
  for (size_t layer = 0; layer < layers; ++layer) {
    const size_t extent =
        (static_cast<size_t>(sent.layer_begin) + layer) * row +
        sent.extent_begin;
    CHECK(extent + pages <= handover.checksums.size());
    std::copy_n(sent.checksums.begin() + static_cast<ptrdiff_t>(layer * pages),
                pages,
                handover.checksums.begin() + static_cast<ptrdiff_t>(extent));
  }
  handover.acknowledged += sent.checksums.size();
  handover.transport = sent.transport;
  TryCommit(task, now);
}

void WorkerCore::Impl::TryCommit(Task& task, TimePoint now) {
  Handover& handover = *task.handover;
  if (handover.stream_closing || handover.call != 0 ||
      handover.retry_at.has_value() || !handover.reserved.has_value() ||
      !handover.first_output.has_value() ||
      handover.acknowledged < handover.checksums.size()) {
    return;
  }
  CloseStreamOf(task);
  handover.call_tries = 0;
  handover.renew_at.reset();
  CallCommit(task, now);
}

// ---- The end ----

void WorkerCore::Impl::CloseStreamOf(Task& task) {
  if (std::exchange(task.handover->stream_closing, true)) return;
  effects_.push_back(CloseStream{.stream = task.id});
}

void WorkerCore::Impl::OnStreamClosed(StreamId stream, TimePoint now) {
  const auto it = tasks_.find(stream);
  if (it == tasks_.end()) return;
  Task& task = it->second;
  task.handover->stream_open = false;
  engine_.Release(task.id);
  if (task.ended) End(task, now);
}

void WorkerCore::Impl::EndHandover(Task& task, TimePoint now) {
  Handover& handover = *task.handover;
  if (!handover.started) {
    engine_.Release(task.id);
    return Erase(task);
  }
  if (handover.stream_open) return CloseStreamOf(task);
  // The sender has stopped writing: now the peer may have its pages back.
  if (handover.call != 0) return;
  if (!handover.peer_may_hold) return Erase(task);
  if (handover.retry_at.has_value()) return;
  CallAbort(task, now);
}

}  // namespace tidepool::worker
