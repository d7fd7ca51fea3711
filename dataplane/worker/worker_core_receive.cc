// The decode worker's side of a handover: pages are reserved and granted,
// written by the peer, sealed and checked at the commit, and returned only
// when nothing can write them any more.
#include <algorithm>

#include "dataplane/base/check.h"
#include "dataplane/worker/worker_core_impl.h"

namespace tidepool::worker {

using Phase = Reception::Phase;

SessionId WorkerCore::Impl::SessionOf(const wire::RequestHeader& header) const {
  const auto it = conductors_.find(header.conductor_id());
  if (it == conductors_.end()) return 0;
  const Session& session = sessions_.at(it->second);
  return session.incarnation == header.conductor_incarnation() ? it->second : 0;
}

void WorkerCore::Impl::Reply(IncomingCallId call,
                             StatusOr<PeerResponse> response) {
  effects_.push_back(
      ReplyToPeer{.call = call, .response = std::move(response)});
}

void WorkerCore::Impl::ReplyAll(Reception& reception,
                                const StatusOr<PeerResponse>& response) {
  for (const IncomingCallId call : std::exchange(reception.calls, {})) {
    Reply(call, response);
  }
}

namespace {

StatusOr<PeerResponse> ReservedAnswer(const Reception& reception,
                                      const std::string& transfer_address,
                                      TimePoint now) {
  wire::ReserveResponse response;
  response.set_present_tokens(reception.present_tokens);
  *response.mutable_capability() = reception.capability;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      reception.expires - now);
  response.mutable_capability()->set_expires_in_ms(
      static_cast<uint32_t>(std::max<int64_t>(1, left.count())));
  response.set_transfer_address(transfer_address);
  return PeerResponse(std::move(response));
}

}  // namespace

void WorkerCore::Impl::OnReserve(IncomingCallId call,
                                 const wire::ReserveRequest& request,
                                 TimePoint now) {
  const wire::RequestHeader& header = request.header();
  const Status valid = ValidateHeader(header);
  if (!valid.ok()) return Reply(call, Annotate(valid, "reserve.header"));
  if (request.identity().SerializeAsString() !=
      config_.description.identity().SerializeAsString()) {
    return Reply(call, FailedPrecondition(
                           "the workers differ in model, numerics or layout"));
  }
  const SessionId session = SessionOf(header);
  if (session == 0) {
    return Reply(call, FailedPrecondition("no session with conductor {}",
                                          header.conductor_id()));
  }
  Task* live = FindLive(header);
  if (live != nullptr && live->reception != nullptr &&
      live->reception->sender_incarnation == request.sender_incarnation()) {
    Reception& reception = *live->reception;
    if (reception.phase == Phase::kGranting) {
      if (reception.calls.size() >= config_.max_pending_replies) {
        return Reply(call, Unavailable("too many repeats of one call"));
      }
      return reception.calls.push_back(call);
    }
    if (reception.phase == Phase::kReserved) {
      reception.expires = now + config_.reservation_ttl;
      return Reply(call,
                   ReservedAnswer(reception,
                                  config_.description.transfer_address(), now));
    }
  }
  const Status accepted = Accepts(wire::ROLE_DECODE);
  if (!accepted.ok()) return Reply(call, accepted);
  const Status admitted = AdmitAttempt(header, now);
  if (!admitted.ok()) return Reply(call, admitted);

  engine::EngineRequest wanted = EngineRequestOf(
      header, request.request(), config_.description.identity());
  wanted.id = next_task_;
  const StatusOr<engine::Reservation> reserved =
      engine_.Reserve(std::move(wanted));
  if (!reserved.ok()) return Reply(call, reserved.status());
  const auto skip = static_cast<size_t>(reserved->cached_tokens) /
                    config_.description.identity().page_tokens();
  GrantCapability grant{
      .pages = {reserved->pages.begin() + static_cast<ptrdiff_t>(skip),
                reserved->pages.end()}};
  Task& task = AddTask(header, session, now);
  task.reception = std::make_unique<Reception>();
  task.reception->sender_incarnation = request.sender_incarnation();
  task.reception->present_tokens =
      static_cast<uint32_t>(reserved->cached_tokens);
  task.reception->calls.push_back(call);
  grant.grant = task.id;
  grant.expiry = task.deadline;
  effects_.push_back(std::move(grant));
}

void WorkerCore::Impl::OnGranted(
    GrantId grant, const StatusOr<wire::TransferCapability>& capability,
    TimePoint now) {
  Task& task = tasks_.at(grant);
  Reception& reception = *task.reception;
  CHECK(reception.phase == Phase::kGranting);
  if (!capability.ok()) {
    reception.writable = false;
    ReplyAll(reception, Annotate(capability.status(), "grant"));
    return End(task, now);
  }
  reception.phase = Phase::kReserved;
  reception.capability = *capability;
  if (task.ended) return EndReception(task);
  reception.expires = now + config_.reservation_ttl;
  Arm(task);
  ReplyAll(
      reception,
      ReservedAnswer(reception, config_.description.transfer_address(), now));
}

void WorkerCore::Impl::OnCommit(IncomingCallId call,
                                const wire::CommitRequest& request) {
  const wire::RequestHeader& header = request.header();
  Task* task = FindLive(header);
  if (task == nullptr || task->reception == nullptr) {
    const Ended* ended = FindEnded(KeyOf(header));
    if (ended != nullptr && ended->attempt == header.attempt() &&
        ended->committed) {
      return Reply(call, PeerResponse(wire::CommitResponse()));
    }
    // It may have been handed back, which is nobody's failure.
    const Status accepted = Accepts(wire::ROLE_DECODE);
    if (!accepted.ok()) return Reply(call, accepted);
    return Reply(call, NotFound("attempt {} of request {} holds no reservation",
                                header.attempt(), header.request_id()));
  }
  Reception& reception = *task->reception;
  switch (reception.phase) {
    case Phase::kActive:
      return Reply(call, PeerResponse(wire::CommitResponse()));
    case Phase::kSealing:
      if (reception.calls.size() >= config_.max_pending_replies) {
        return Reply(call, Unavailable("too many repeats of one call"));
      }
      return reception.calls.push_back(call);
    case Phase::kGranting:
      return Reply(call, NotFound("nothing is granted yet"));
    case Phase::kReserved:
      break;
  }
  if (request.capability_id() != reception.capability.capability_id()) {
    return Reply(call, NotFound("capability {} is not that of the reservation",
                                request.capability_id()));
  }
  reception.phase = Phase::kSealing;
  reception.commit = request;
  reception.calls.push_back(call);
  Revoke(*task);
}

void WorkerCore::Impl::Revoke(Task& task) {
  if (std::exchange(task.reception->revoking, true)) return;
  effects_.push_back(RevokeCapability{.grant = task.id});
}

void WorkerCore::Impl::OnRevoked(GrantId grant,
                                 const transfer::Received& received,
                                 TimePoint now) {
  Task& task = tasks_.at(grant);
  task.reception->writable = false;
  if (task.ended) return EndReception(task);
  Activate(task, received, now);
}

void WorkerCore::Impl::Activate(Task& task, const transfer::Received& received,
                                TimePoint now) {
  Reception& reception = *task.reception;
  const wire::CommitRequest commit = std::move(reception.commit);
  if (!received.complete || received.digest != commit.digest()) {
    ++stats_.digest_failures_total;
    ReplyAll(reception,
             received.complete
                 ? DataLoss("the digest differs: {:x} came, {:x} was sent",
                            received.digest, commit.digest())
                 : DataLoss("slices are missing, {} came", received.extents));
    return End(task, now);
  }
  wire::RequestOutput first = commit.first_output();
  const StatusOr<engine::FinishReason> active =
      first.tokens_size() == 1
          ? engine_.Activate(task.id, first.tokens(0))
          : InvalidArgument("{} tokens, not one", first.tokens_size());
  if (!active.ok()) {
    ReplyAll(reception, Annotate(active.status(), "commit.first_output"));
    return End(task, now);
  }
  reception.phase = Phase::kActive;
  ++stats_.received_total;
  ReplyAll(reception, PeerResponse(wire::CommitResponse()));
  first.set_request_id(task.header.request_id());
  first.set_attempt(task.header.attempt());
  first.set_finish_reason(FinishReasonOf(*active));
  wire::SessionResponse message;
  *message.mutable_outputs()->add_outputs() = std::move(first);
  Send(task.session, std::move(message));
  if (*active != engine::FinishReason::kNone) End(task, now);
}

void WorkerCore::Impl::OnAbort(IncomingCallId call,
                               const wire::AbortRequest& request,
                               TimePoint now) {
  const wire::RequestHeader& header = request.header();
  const Status valid = ValidateHeader(header);
  if (!valid.ok()) return Reply(call, Annotate(valid, "abort.header"));
  Task* task = FindLive(header);
  if (task != nullptr && task->reception != nullptr) {
    // What is committed is the conductor's alone to end: the sender may only
    // have missed the answer.
    if (task->reception->phase != Phase::kActive) End(*task, now);
  } else if (task == nullptr) {
    // The Reserve it undoes may still be on its way.
    const Ended* ended = FindEnded(KeyOf(header));
    if (ended == nullptr || ended->attempt < header.attempt()) {
      RememberEnded(KeyOf(header), header.attempt(), false);
    }
  }
  Reply(call, PeerResponse(wire::AbortResponse()));
}

void WorkerCore::Impl::EndReception(Task& task) {
  Reception& reception = *task.reception;
  ReplyAll(reception, MakeError(Code::kAborted, "the attempt ended"));
  if (reception.phase == Phase::kGranting && reception.writable) return;
  if (reception.writable) return Revoke(task);
  // Nothing can write the pages any more.
  engine_.Release(task.id);
  Erase(task);
}

}  // namespace tidepool::worker
