#include "dataplane/conductor/conductor_core.h"

#include <algorithm>

#include "dataplane/base/check.h"
#include "dataplane/conductor/conductor_core_impl.h"

namespace tidepool::conductor {

using scheduling::Placement;
using scheduling::PlacementReason;
using scheduling::WorkerView;

Status ConductorCore::Impl::Submit(ClientRequest client, TimePoint now) {
  if (shut_down_) return Unavailable("the conductor is shutting down");
  if (client.id.empty()) return InvalidArgument("request id is empty");
  if (client.prompt.empty()) {
    return InvalidArgument("request {}: prompt is empty", client.id);
  }
  if (client.timeout <= Duration(0)) {
    return InvalidArgument("request {}: timeout is not positive", client.id);
  }
  if (requests_.size() >= config_.max_requests) {
    return ResourceExhausted("{} requests are in flight", requests_.size());
  }
  if (waiting_.size() >= config_.max_waiting_requests) {
    return ResourceExhausted("{} requests are waiting", waiting_.size());
  }
  const Handle handle = next_handle_++;
  if (!handles_.try_emplace(client.id, handle).second) {
    return InvalidArgument("request id {} is in use", client.id);
  }
  ++stats_.submitted;
  Request& request = requests_[handle];
  request.handle = handle;
  request.record.id = client.id;
  request.record.prompt_tokens = static_cast<uint32_t>(client.prompt.size());
  request.record.arrived = now;
  request.deadline = now + client.timeout;
  request.client = std::move(client);
  Wait(request, Duration(0), now);
  return OkStatus();
}

void ConductorCore::Impl::Cancel(std::string_view id, std::string_view reason,
                                 TimePoint now) {
  const auto it = handles_.find(std::string(id));
  if (it == handles_.end()) return;
  Request& request = requests_.at(it->second);
  ReleaseWorkers(request, true, now);
  End(request, EndReason::kCancelled, std::string(reason), now);
}

void ConductorCore::Impl::Shutdown(TimePoint now) {
  shut_down_ = true;
  while (!requests_.empty()) {
    Request& request = requests_.begin()->second;
    ReleaseWorkers(request, true, now);
    End(request, EndReason::kShutdown, "the conductor is shutting down", now);
  }
  while (!workers_.empty()) RemoveWorker(workers_.begin()->first, now);
}

void ConductorCore::Impl::Arm(const Request& request) {
  TimePoint at = request.deadline;
  if (request.waiting) {
    at = std::min({at, PatienceOf(request), request.not_before});
  } else {
    at = std::min(at, request.progress_deadline);
  }
  request_wakes_.Arm(request.handle, at);
}

void ConductorCore::Impl::WakeRequest(Handle handle, TimePoint now) {
  Request& request = requests_.at(handle);
  if (request.deadline <= now) {
    ReleaseWorkers(request, true, now);
    return End(request, EndReason::kExpired, "the request timed out", now);
  }
  if (!request.waiting) {
    if (request.progress_deadline > now) return Arm(request);
    Exclude(request, workers_.at(request.decode->worker));
    return FailAttempt(
        request,
        fmt::format("{}: no progress",
                    workers_.at(request.decode->worker).status.name),
        now);
  }
  if (PatienceOf(request) <= now) {
    return End(
        request,
        ReadyFor(request) ? EndReason::kNoRoom : EndReason::kNoReadyWorker,
        fmt::format("no worker could take the request in time ({})",
                    NameOf(request.waiting_for)),
        now);
  }
  if (request.not_before > now) return Arm(request);
  // The backoff is over: from here on only the end of patience wakes it.
  dispatch_ = true;
  request_wakes_.Arm(handle, std::min(request.deadline, PatienceOf(request)));
}

bool ConductorCore::Impl::ReadyFor(const Request& request) const {
  return std::ranges::any_of(workers_, [&](const auto& entry) {
    const Worker& worker = entry.second;
    return worker.ready_to_decode() &&
           worker.identity == request.identity.value_or(worker.identity);
  });
}

TimePoint ConductorCore::Impl::PatienceOf(const Request& request) const {
  if (!ReadyFor(request)) {
    return std::max(request.waiting_since, lost_worker_at_) +
           config_.max_unready_wait;
  }
  // What a worker gave back was admitted before.
  return request.record.hand_backs > 0
             ? request.deadline
             : request.waiting_since + config_.max_queue_wait;
}

void ConductorCore::Impl::Dispatch(TimePoint now) {
  if (!std::exchange(dispatch_, false) || waiting_.empty()) return;
  std::vector<WorkerView> views = Views();
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const Handle handle = *next++;  // which may stop waiting in this turn
    Request& request = requests_.at(handle);
    if (request.not_before > now) continue;
    for (WorkerView& view : views) {
      view.excluded = request.excluded.contains(
          {view.id, workers_.at(view.id).status.description.incarnation()});
    }
    const Placement placement =
        placement_.Place({.context_tokens = request.context_tokens(),
                          .identity = request.identity},
                         views);
    request.waiting_for = placement.reason;
    if (placement.placed()) {
      StartAttempt(request, placement, now);
      views = Views();
    } else if (placement.reason == PlacementReason::kTooLong &&
               request.record.hand_backs == 0) {
      End(request, EndReason::kInvalid,
          fmt::format("no worker can hold a context of {} tokens",
                      request.context_tokens()),
          now);
    } else if (!request.identity.has_value()) {
      return;  // nor is there a place for those behind it
    }
  }
}

void ConductorCore::Impl::End(Request& request, EndReason reason,
                              std::string message, TimePoint now) {
  ReleaseWorkers(request, false, now);
  waiting_.erase(request.handle);
  request_wakes_.Disarm(request.handle);
  request.record.ended = now;
  request.record.end_reason = reason;
  ++stats_.ended[static_cast<size_t>(reason)];
  effects_.push_back(EndRequest{.request_id = request.client.id,
                                .reason = reason,
                                .message = std::move(message),
                                .record = request.record});
  records_.push_back(std::move(request.record));
  if (records_.size() > config_.max_records) records_.pop_front();
  handles_.erase(request.client.id);
  requests_.erase(request.handle);
}

void ConductorCore::Impl::Tick(TimePoint now) {
  while (const auto worker = worker_wakes_.PopDue(now)) {
    WakeWorker(*worker, now);
  }
  while (const auto handle = request_wakes_.PopDue(now)) {
    WakeRequest(*handle, now);
  }
}

TimePoint ConductorCore::Impl::NextDeadline() const {
  return std::min(worker_wakes_.next(), request_wakes_.next());
}

ConductorStats ConductorCore::Impl::Stats() const {
  ConductorStats stats = stats_;
  stats.requests = static_cast<uint32_t>(requests_.size());
  stats.waiting = static_cast<uint32_t>(waiting_.size());
  if (waiting_.empty()) return stats;
  // Whoever stands behind the first waits for the same.
  const PlacementReason reason = requests_.at(*waiting_.begin()).waiting_for;
  if (reason == PlacementReason::kNoDecodeRoom ||
      reason == PlacementReason::kNoReadyWorker) {
    stats.waiting_for_decode = stats.waiting;
    return stats;
  }
  for (const Handle handle : waiting_) {
    stats.waiting_prompt_tokens += requests_.at(handle).context_tokens();
  }
  return stats;
}

const RequestRecord* ConductorCore::Impl::Find(std::string_view id) const {
  const auto it = handles_.find(std::string(id));
  if (it != handles_.end()) return &requests_.at(it->second).record;
  const auto ended = std::ranges::find(records_, id, &RequestRecord::id);
  return ended == records_.end() ? nullptr : &*ended;
}

// ---- The public face: each input, then what it makes possible. ----

ConductorCore::ConductorCore(ConductorCoreConfig config,
                             const scheduling::PlacementPolicy& placement)
    : impl_(std::make_unique<Impl>(std::move(config), placement)) {}
ConductorCore::~ConductorCore() = default;

StatusOr<WorkerId> ConductorCore::AddWorker(std::string name,
                                            std::string address,
                                            TimePoint now) {
  return impl_->AddWorker(std::move(name), std::move(address), now);
}
void ConductorCore::RemoveWorker(WorkerId worker, TimePoint now) {
  impl_->RemoveWorker(worker, now);
  impl_->Dispatch(now);
}
void ConductorCore::OnConnected(ConnectionId connection, TimePoint now) {
  impl_->OnConnected(connection, now);
}
void ConductorCore::OnDisconnected(ConnectionId connection,
                                   const Status& reason, TimePoint now) {
  impl_->OnDisconnected(connection, reason, now);
  impl_->Dispatch(now);
}
void ConductorCore::OnDescribed(ConnectionId connection,
                                const wire::DescribeResponse& description) {
  impl_->OnDescribed(connection, description);
}
void ConductorCore::OnMessage(ConnectionId connection,
                              const wire::SessionResponse& message,
                              TimePoint now) {
  impl_->OnMessage(connection, message, now);
  impl_->Dispatch(now);
}
Status ConductorCore::Submit(ClientRequest request, TimePoint now) {
  RETURN_IF_ERROR(impl_->Submit(std::move(request), now));
  impl_->Dispatch(now);
  return OkStatus();
}
void ConductorCore::Cancel(std::string_view request_id, std::string_view reason,
                           TimePoint now) {
  impl_->Cancel(request_id, reason, now);
  impl_->Dispatch(now);
}
void ConductorCore::Shutdown(TimePoint now) { impl_->Shutdown(now); }
void ConductorCore::Tick(TimePoint now) {
  impl_->Tick(now);
  impl_->Dispatch(now);
}
TimePoint ConductorCore::NextDeadline() const { return impl_->NextDeadline(); }
std::vector<ConductorEffect> ConductorCore::TakeEffects() {
  return std::exchange(impl_->effects_, {});
}
std::vector<WorkerStatus> ConductorCore::Workers() const {
  return impl_->Workers();
}
bool ConductorCore::Ready() const { return impl_->Ready(); }
ConductorStats ConductorCore::Stats() const { return impl_->Stats(); }
const RequestRecord* ConductorCore::Find(std::string_view request_id) const {
  return impl_->Find(request_id);
}

}  // namespace tidepool::conductor
