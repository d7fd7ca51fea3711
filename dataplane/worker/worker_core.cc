#include "dataplane/worker/worker_core.h"

#include <algorithm>

#include "dataplane/base/check.h"
#include "dataplane/worker/worker_core_impl.h"

namespace tidepool::worker {

// ---- Sessions ----

void WorkerCore::Impl::OnSessionMessage(SessionId id,
                                        const wire::SessionRequest& message,
                                        TimePoint now) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return OnHello(id, message, now);
  Session& session = it->second;
  if (message.sequence() != session.next_received) {
    ++stats_.session_gaps_total;
    return EndSessionFor(
        id,
        FailedPrecondition("message {} came where {} was due",
                           message.sequence(), session.next_received),
        now);
  }
  ++session.next_received;
  if (message.has_submit()) {
    OnSubmit(id, message.submit(), now);
  } else if (message.has_cancel()) {
    OnCancel(session, message.cancel(), now);
  } else {
    EndSessionFor(
        id,
        InvalidArgument("message {} is of an unknown kind", message.sequence()),
        now);
  }
}

void WorkerCore::Impl::OnHello(SessionId id,
                               const wire::SessionRequest& message,
                               TimePoint now) {
  const auto refuse = [&](Status reason) {
    effects_.push_back(EndSession{.session = id, .reason = std::move(reason)});
  };
  if (message.sequence() != 1 || !message.has_hello()) {
    return refuse(FailedPrecondition("the first message must be a hello"));
  }
  const wire::ConductorHello& hello = message.hello();
  if (hello.conductor_id().empty()) {
    return refuse(InvalidArgument("conductor_id is empty"));
  }
  const auto older = conductors_.find(hello.conductor_id());
  if (older != conductors_.end()) {
    EndSessionFor(older->second,
                  MakeError(Code::kAborted, "replaced by a newer session"),
                  now);
  }
  if (sessions_.size() >= config_.max_sessions) {
    return refuse(
        ResourceExhausted("at most {} sessions", config_.max_sessions));
  }
  conductors_[hello.conductor_id()] = id;
  sessions_[id] = {.conductor_id = hello.conductor_id(),
                   .incarnation = hello.incarnation()};
  wire::SessionResponse answer;
  *answer.mutable_hello()->mutable_description() = Describe();
  Send(id, std::move(answer));
  wire::SessionResponse load;
  *load.mutable_load() = Load();
  Send(id, std::move(load));
}

void WorkerCore::Impl::OnSessionClosed(SessionId id, TimePoint now) {
  CloseSession(id, now);
}

void WorkerCore::Impl::CloseSession(SessionId id, TimePoint now) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  for (const TaskId task : std::set<TaskId>(it->second.tasks)) {
    End(tasks_.at(task), now);
  }
  const auto conductor = conductors_.find(it->second.conductor_id);
  if (conductor != conductors_.end() && conductor->second == id) {
    conductors_.erase(conductor);
  }
  sessions_.erase(it);
}

void WorkerCore::Impl::EndSessionFor(SessionId id, const Status& reason,
                                     TimePoint now) {
  effects_.push_back(EndSession{.session = id, .reason = reason});
  CloseSession(id, now);
}

void WorkerCore::Impl::Send(SessionId id, wire::SessionResponse message) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  message.set_sequence(it->second.next_sent++);
  effects_.push_back(
      SendToConductor{.session = id, .message = std::move(message)});
}

void WorkerCore::Impl::OnSubmit(SessionId id, const wire::SubmitRequest& submit,
                                TimePoint now) {
  using Failure = wire::RequestFailure;
  const wire::RequestHeader& header = submit.header();
  Status valid = ValidateHeader(header);
  const Session& session = sessions_.at(id);
  if (valid.ok() && (header.conductor_id() != session.conductor_id ||
                     header.conductor_incarnation() != session.incarnation)) {
    valid = InvalidArgument("conductor_id is not that of the session");
  }
  if (!valid.ok()) {
    return EndSessionFor(id, Annotate(valid, "submit.header"), now);
  }
  if (const Status accepted = Accepts(
          submit.has_decode_peer() ? wire::ROLE_PREFILL : wire::ROLE_DECODE);
      !accepted.ok()) {
    return Refuse(id, header, Failure::KIND_DRAINING,
                  std::string(MessageOf(accepted)));
  }
  const Status admitted = AdmitAttempt(header, now);
  if (!admitted.ok()) {
    return Refuse(id, header,
                  admitted.code() == Code::kResourceExhausted
                      ? Failure::KIND_OVERLOADED
                      : Failure::KIND_INTERNAL,
                  std::string(MessageOf(admitted)));
  }
  engine::EngineRequest request =
      EngineRequestOf(header, submit.request(), config_.description.identity());
  request.id = next_task_;
  request.prefill_only = submit.has_decode_peer();
  const Status added = engine_.Add(std::move(request));
  if (!added.ok()) {
    RememberEnded(KeyOf(header), header.attempt(), false);
    const auto kind =
        added.code() == Code::kInvalidArgument     ? Failure::KIND_INVALID
        : added.code() == Code::kResourceExhausted ? Failure::KIND_OVERLOADED
                                                   : Failure::KIND_INTERNAL;
    return Refuse(id, header, kind, std::string(MessageOf(added)));
  }
  ++stats_.submitted_total;
  Task& task = AddTask(header, id, now);
  if (!submit.has_decode_peer()) return;
  task.handover = std::make_unique<Handover>();
  task.handover->peer = submit.decode_peer();
  task.handover->request = submit.request();
}

void WorkerCore::Impl::OnCancel(const Session& session,
                                const wire::CancelRequest& cancel,
                                TimePoint now) {
  const wire::RequestHeader& header = cancel.header();
  if (header.conductor_id() != session.conductor_id ||
      header.conductor_incarnation() != session.incarnation) {
    return;
  }
  const std::string key = KeyOf(header);
  const auto live = live_.find(key);
  if (live != live_.end()) {
    Task& task = tasks_.at(live->second);
    if (task.header.attempt() <= header.attempt()) End(task, now);
  }
  // Also of what has not come yet: a Reserve may be on its way from elsewhere.
  const Ended* ended = FindEnded(key);
  if (ended == nullptr || ended->attempt < header.attempt()) {
    RememberEnded(key, header.attempt(), false);
  }
}

wire::WorkerLoad WorkerCore::Impl::Load() const {
  wire::WorkerLoad load = LoadOf(engine_.Stats());
  load.set_draining(draining_);
  if (prefill_seconds_ > 0) {
    load.set_prefill_tokens_per_second(prefilled_tokens_ / prefill_seconds_);
  }
  return load;
}

void WorkerCore::Impl::ReportLoad(TimePoint now) {
  load_checked_ = now;
  touched_ = false;
  const wire::WorkerLoad load = Load();
  if (now - load_sent_ < config_.load_interval_max &&
      load.SerializeAsString() == last_load_.SerializeAsString()) {
    return;
  }
  load_sent_ = now;
  last_load_ = load;
  for (const auto& [id, session] : sessions_) {
    wire::SessionResponse message;
    *message.mutable_load() = load;
    Send(id, std::move(message));
  }
}

// ---- Steps ----

void WorkerCore::Impl::OnStepDone(const Status& status,
                                  const engine::StepResult& result,
                                  TimePoint now) {
  CHECK(step_in_flight_);
  step_in_flight_ = false;
  if (status.ok()) MeasurePrefill(now - step_started_);
  std::map<SessionId, wire::StepOutputs> outputs;
  for (const engine::EngineOutput& output :
       status.ok() ? engine_.Complete(result) : engine_.Fail(status)) {
    OnEngineOutput(output, now, outputs);
  }
  for (auto& [session, step_outputs] : outputs) {
    wire::SessionResponse message;
    *message.mutable_outputs() = std::move(step_outputs);
    Send(session, std::move(message));
  }
}

void WorkerCore::Impl::OnEngineOutput(
    const engine::EngineOutput& output, TimePoint now,
    std::map<SessionId, wire::StepOutputs>& outputs) {
  Task& task = tasks_.at(output.sequence);
  if (task.ended) return;
  if (output.finish_reason == engine::FinishReason::kError) {
    return Fail(task, wire::RequestFailure::KIND_INTERNAL,
                std::string(MessageOf(output.error)), now);
  }
  wire::RequestOutput message = RequestOutputOf(task.header, output);
  const bool finished = output.finish_reason != engine::FinishReason::kNone;
  if (task.handover != nullptr && !finished) {
    task.handover->first_output = std::move(message);
    task.handover->transfer_deadline = now + config_.transfer_timeout;
    Arm(task);
    return TryCommit(task, now);
  }
  // A prefill whose first token is the last has nothing to hand over.
  *outputs[task.session].add_outputs() = std::move(message);
  if (finished) End(task, now);
}

void WorkerCore::Impl::MeasurePrefill(Duration time) {
  constexpr double kSecondsKept = 10;
  if (step_prompt_tokens_ == 0) return;
  prefilled_tokens_ += static_cast<double>(step_prompt_tokens_);
  prefill_seconds_ += Seconds(time).count();
  if (prefill_seconds_ < kSecondsKept) return;
  prefilled_tokens_ /= 2;
  prefill_seconds_ /= 2;
}

void WorkerCore::Impl::StartStep(TimePoint now) {
  if (step_in_flight_) return;
  const engine::StepPlan* plan = engine_.Plan();
  if (plan == nullptr) return;
  step_in_flight_ = true;
  step_started_ = now;
  step_prompt_tokens_ = 0;
  const auto page_tokens =
      static_cast<int32_t>(config_.description.identity().page_tokens());
  RunStep run{.plan = plan};
  for (const engine::SequenceStep& step : plan->sequences) {
    Task& task = tasks_.at(step.sequence);
    if (step.begin < step.prompt_tokens) {
      step_prompt_tokens_ += step.end - step.begin;
    }
    if (task.handover == nullptr) continue;
    if (!task.handover->started) BeginHandover(task, step, now);
    task.handover->prefill_tokens +=
        static_cast<uint32_t>(step.end - step.begin);
    const engine::PageRange range = engine::PagesCompletedBy(step, page_tokens);
    if (range.begin == range.end) continue;
    run.step_pages.push_back({.stream = task.id,
                              .first_page = static_cast<uint32_t>(range.begin),
                              .pages = {step.pages.begin() + range.begin,
                                        step.pages.begin() + range.end}});
  }
  effects_.push_back(std::move(run));
}

void WorkerCore::Impl::Settle(TimePoint now) {
  touched_ = true;
  AdvanceRole(now);
  StartStep(now);
  if (now - load_checked_ >= config_.load_interval_min) ReportLoad(now);
}

// ---- Time ----

void WorkerCore::Impl::Tick(TimePoint now) {
  while (const auto id = wakes_.PopDue(now)) WakeTask(*id, now);
}

TimePoint WorkerCore::Impl::NextDeadline() const {
  const TimePoint next = std::min(wakes_.next(), hand_back_at_);
  if (sessions_.empty()) return next;
  const TimePoint load = touched_ ? load_checked_ + config_.load_interval_min
                                  : load_sent_ + config_.load_interval_max;
  return std::min(next, load);
}

wire::DescribeResponse WorkerCore::Impl::Describe() const {
  wire::DescribeResponse description = config_.description;
  description.set_role(role_.role());
  *description.mutable_role_state() = role_;
  description.set_draining(draining_);
  return description;
}

WorkerCoreStats WorkerCore::Impl::Stats() const {
  WorkerCoreStats stats = stats_;
  stats.sessions = static_cast<uint32_t>(sessions_.size());
  stats.requests = static_cast<uint32_t>(tasks_.size());
  for (const auto& [id, task] : tasks_) {
    if (task.handover != nullptr && task.handover->stream_open) ++stats.streams;
    if (task.reception == nullptr || !task.reception->writable) continue;
    if (task.ended) {
      ++stats.quarantined;
    } else {
      ++stats.reservations;
    }
  }
  return stats;
}

// ---- The public face: each input, then what follows from it. ----

WorkerCore::WorkerCore(WorkerCoreConfig config, engine::EngineCore& engine)
    : impl_(std::make_unique<Impl>(std::move(config), engine)) {}
WorkerCore::~WorkerCore() = default;

void WorkerCore::OnSessionMessage(SessionId session,
                                  const wire::SessionRequest& message,
                                  TimePoint now) {
  impl_->OnSessionMessage(session, message, now);
  impl_->Settle(now);
}
void WorkerCore::OnSessionClosed(SessionId session, TimePoint now) {
  impl_->OnSessionClosed(session, now);
  impl_->Settle(now);
}
void WorkerCore::OnPeerCall(IncomingCallId call, const PeerRequest& request,
                            TimePoint now) {
  if (const auto* reserve = std::get_if<wire::ReserveRequest>(&request)) {
    impl_->OnReserve(call, *reserve, now);
  } else if (const auto* commit = std::get_if<wire::CommitRequest>(&request)) {
    impl_->OnCommit(call, *commit);
  } else {
    impl_->OnAbort(call, std::get<wire::AbortRequest>(request), now);
  }
  impl_->Settle(now);
}
void WorkerCore::OnGranted(GrantId grant,
                           const StatusOr<wire::TransferCapability>& capability,
                           TimePoint now) {
  impl_->OnGranted(grant, capability, now);
  impl_->Settle(now);
}
void WorkerCore::OnRevoked(GrantId grant, const transfer::Received& received,
                           TimePoint now) {
  impl_->OnRevoked(grant, received, now);
  impl_->Settle(now);
}
void WorkerCore::OnPeerReply(PeerCallId call,
                             const StatusOr<PeerResponse>& response,
                             TimePoint now) {
  impl_->OnPeerReply(call, response, now);
  impl_->Settle(now);
}
void WorkerCore::OnSlicesSent(const SlicesSent& sent, TimePoint now) {
  impl_->OnSlicesSent(sent, now);
  impl_->Settle(now);
}
void WorkerCore::OnStreamClosed(StreamId stream, TimePoint now) {
  impl_->OnStreamClosed(stream, now);
  impl_->Settle(now);
}
void WorkerCore::OnStepDone(const Status& status,
                            const engine::StepResult& result, TimePoint now) {
  impl_->OnStepDone(status, result, now);
  impl_->Settle(now);
}
StatusOr<wire::RoleState> WorkerCore::SetRole(
    const wire::SetRoleRequest& request, TimePoint now) {
  StatusOr<wire::RoleState> state = impl_->SetRole(request, now);
  impl_->Settle(now);
  return state;
}
void WorkerCore::Drain(Duration timeout, TimePoint now) {
  impl_->Drain(timeout, now);
  impl_->Settle(now);
}
bool WorkerCore::Idle() const { return impl_->Idle(); }
void WorkerCore::Tick(TimePoint now) {
  impl_->Tick(now);
  impl_->Settle(now);
}
TimePoint WorkerCore::NextDeadline() const { return impl_->NextDeadline(); }
std::vector<WorkerEffect> WorkerCore::TakeEffects() {
  return std::exchange(impl_->effects_, {});
}
wire::DescribeResponse WorkerCore::Describe() const {
  return impl_->Describe();
}
const wire::RoleState& WorkerCore::role_state() const {
  return impl_->role_state();
}
WorkerCoreStats WorkerCore::Stats() const { return impl_->Stats(); }

}  // namespace tidepool::worker
