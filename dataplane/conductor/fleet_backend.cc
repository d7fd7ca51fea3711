#include "dataplane/conductor/fleet_backend.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "dataplane/base/log.h"
#include "dataplane/base/mutex.h"
#include "dataplane/conductor/membership.h"

namespace tidepool::conductor {
namespace {

constexpr Duration kSnapshotInterval = std::chrono::milliseconds(100);
constexpr Duration kWaitMax = std::chrono::seconds(1);
constexpr size_t kSubmissionsMax = 8192;

// What the core's thread is told.
struct SubmitEvent {
  ClientRequest request;
  std::shared_ptr<GenerationListener> listener;
};
struct CancelEvent {
  std::string request_id, reason;
};
struct MessageEvent {
  ConnectionId connection;
  wire::SessionResponse message;
};
struct DescribeEvent {
  ConnectionId connection;
  wire::DescribeResponse description;
};
struct DisconnectEvent {
  ConnectionId connection;
  Status reason;
};
struct DiscoverEvent {
  size_t source;
  std::vector<std::string> addresses;
};
using Event = std::variant<SubmitEvent, CancelEvent, MessageEvent,
                           DescribeEvent, DisconnectEvent, DiscoverEvent>;

// Between any thread and the core's. Thread-safe; outlives the streams that
// still tell it things.
class Inbox {
 public:
  // False if too many submissions wait.
  bool TrySubmit(SubmitEvent event) {
    const MutexLock lock(&mutex_);
    if (closed_ || submissions_ >= kSubmissionsMax) return false;
    ++submissions_;
    events_.push_back(std::move(event));
    return true;
  }

  void Push(Event event) {
    const MutexLock lock(&mutex_);
    if (!closed_) events_.push_back(std::move(event));
  }

  // All events, after waiting for one for `timeout` at most.
  std::deque<Event> Take(Duration timeout) {
    const MutexLock lock(&mutex_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closed_ || !events_.empty();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::FromChrono(timeout));
    submissions_ = 0;
    return std::exchange(events_, {});
  }

  void Close() {
    const MutexLock lock(&mutex_);
    closed_ = true;
  }
  bool closed() const {
    const MutexLock lock(&mutex_);
    return closed_;
  }

 private:
  mutable Mutex mutex_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  size_t submissions_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

// Confined to its thread, but for Snapshot and the inbox.
class FleetBackend::Impl {
 public:
  Impl(const ConductorCoreConfig& config,
       const scheduling::PlacementPolicy& placement, WorkerDialer& dialer,
       const Clock& clock)
      : core_(config, placement),
        dialer_(dialer),
        clock_(clock),
        membership_(config.max_workers) {}

  Status AddWorkers(const std::vector<FleetWorker>& workers) {
    for (const FleetWorker& worker : workers)
      RETURN_IF_ERROR(
          core_.AddWorker(worker.name, worker.address, clock_.Now()).status());
    RefreshSnapshot(clock_.Now());
    return OkStatus();
  }

  void StartThread() {
    thread_ = std::thread([this] { Run(); });
  }
  void Stop() {
    inbox_->Close();
    thread_.join();
  }

  void Submit(ClientRequest request,
              std::shared_ptr<GenerationListener> listener) {
    if (inbox_->TrySubmit({std::move(request), listener})) return;
    listener->OnEnd(
        inbox_->closed()
            ? StatusOf(EndReason::kShutdown, "")
            : StatusOf(EndReason::kNoRoom, "too many requests arrive at once"),
        {});
  }
  void Cancel(std::string request_id, std::string reason) {
    inbox_->Push(CancelEvent{std::move(request_id), std::move(reason)});
  }
  void OnDiscovered(size_t source, std::vector<std::string> addresses) {
    inbox_->Push(DiscoverEvent{source, std::move(addresses)});
  }

  std::shared_ptr<const FleetSnapshot> Snapshot() const {
    const MutexLock lock(&mutex_);
    return snapshot_;
  }

 private:
  struct Request {
    std::shared_ptr<GenerationListener> listener;
    uint32_t attempt = 0;  // of its last output
  };

  void Run();
  Duration WaitTime(TimePoint now) const;
  void Apply(SubmitEvent event, TimePoint now);
  void Apply(CancelEvent event, TimePoint now);
  void Apply(MessageEvent event, TimePoint now);
  void Apply(DescribeEvent event, TimePoint now);
  void Apply(DisconnectEvent event, TimePoint now);
  void Apply(DiscoverEvent event, TimePoint now);
  void CarryOut();
  void CarryOut(ConnectWorker effect);
  void CarryOut(DisconnectWorker effect);
  void CarryOut(SendToWorker effect);
  void CarryOut(EmitOutput effect);
  void CarryOut(EndRequest effect);
  void RefreshSnapshot(TimePoint now);

  ConductorCore core_;
  WorkerDialer& dialer_;
  const Clock& clock_;
  Membership membership_;
  std::unordered_map<std::string, WorkerId> discovered_;  // by address
  std::set<size_t> crowded_;  // names with more addresses than there is room
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::unordered_map<ConnectionId, std::shared_ptr<WorkerStream>> streams_;
  std::unordered_map<std::string, Request> requests_;
  TimePoint snapshot_time_{};
  bool snapshot_is_old_ = false;
  mutable Mutex mutex_;
  std::shared_ptr<const FleetSnapshot> snapshot_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

void FleetBackend::Impl::Run() {
  CarryOut();  // what AddWorker asked for
  while (!inbox_->closed()) {
    std::deque<Event> events = inbox_->Take(WaitTime(clock_.Now()));
    const TimePoint now = clock_.Now();
    for (Event& event : events) {
      std::visit([&](auto& value) { Apply(std::move(value), now); }, event);
      CarryOut();
    }
    snapshot_is_old_ |= !events.empty();
    if (core_.NextDeadline() <= now) {
      core_.Tick(now);
      CarryOut();
      snapshot_is_old_ = true;
    }
    if (snapshot_is_old_ && now - snapshot_time_ >= kSnapshotInterval)
      RefreshSnapshot(now);
  }
  for (Event& event : inbox_->Take(Duration::zero()))
    std::visit([&](auto& value) { Apply(std::move(value), clock_.Now()); },
               event);
  core_.Shutdown(clock_.Now());
  CarryOut();
  for (const auto& [id, stream] : streams_)
    stream->Close("the conductor is going away");
}

Duration FleetBackend::Impl::WaitTime(TimePoint now) const {
  Duration wait = kWaitMax;
  if (core_.NextDeadline() != TimePoint::max())
    wait = std::min(wait, core_.NextDeadline() - now);
  if (snapshot_is_old_)
    wait = std::min(wait, snapshot_time_ + kSnapshotInterval - now);
  return std::max(wait, Duration::zero());
}

void FleetBackend::Impl::RefreshSnapshot(TimePoint now) {
  auto snapshot = std::make_shared<FleetSnapshot>();
  snapshot->ready = core_.Ready();
  snapshot->workers = core_.Workers();
  snapshot->stats = core_.Stats();
  snapshot_time_ = now;
  snapshot_is_old_ = false;
  const MutexLock lock(&mutex_);
  snapshot_ = std::move(snapshot);
}

void FleetBackend::Impl::Apply(SubmitEvent event, TimePoint now) {
  std::string id = event.request.id;
  if (const Status accepted = core_.Submit(std::move(event.request), now);
      !accepted.ok())
    return event.listener->OnEnd(accepted, {});
  requests_.emplace(std::move(id), Request{std::move(event.listener)});
}

void FleetBackend::Impl::Apply(CancelEvent event, TimePoint now) {
  core_.Cancel(event.request_id, event.reason, now);
}

void FleetBackend::Impl::Apply(MessageEvent event, TimePoint now) {
  const auto found = streams_.find(event.connection);
  if (found == streams_.end()) return;  // closed since
  const std::shared_ptr<WorkerStream> stream = found->second;
  core_.OnMessage(event.connection, event.message, now);
  stream->ReadNext();
}

void FleetBackend::Impl::Apply(DescribeEvent event, TimePoint) {
  core_.OnDescribed(event.connection, event.description);
}

void FleetBackend::Impl::Apply(DisconnectEvent event, TimePoint now) {
  if (streams_.erase(event.connection) == 0) return;
  core_.OnDisconnected(event.connection, event.reason, now);
}

void FleetBackend::Impl::Apply(DiscoverEvent event, TimePoint now) {
  std::set<std::string, std::less<>> connected;
  for (const WorkerStatus& worker : core_.Workers())
    if (worker.connected) connected.insert(worker.address);
  const Membership::Change change = membership_.OnAnswer(
      event.source, std::move(event.addresses),
      [&](std::string_view address) { return connected.contains(address); });
  for (const std::string& address : change.removed) {
    const auto found = discovered_.find(address);
    if (found == discovered_.end()) continue;
    LOG_INFO("discovery: {} is gone", address);
    core_.RemoveWorker(found->second, now);
    discovered_.erase(found);
  }
  Status left_out;
  for (const std::string& address : change.added) {
    const StatusOr<WorkerId> added = core_.AddWorker("", address, now);
    if (added.ok()) {
      LOG_INFO("discovery: {} is new", address);
      discovered_[address] = *added;
    } else if (added.status().code() != Code::kAlreadyExists) {
      left_out = added.status();
      membership_.Forget(address);
    }
  }
  // Every answer will say so again.
  if (left_out.ok())
    crowded_.erase(event.source);
  else if (crowded_.insert(event.source).second)
    LOG_WARNING("discovery: not all addresses are workers: {}",
                MessageOf(left_out));
}

void FleetBackend::Impl::CarryOut() {
  for (auto effects = core_.TakeEffects(); !effects.empty();
       effects = core_.TakeEffects())
    for (ConductorEffect& effect : effects)
      std::visit([&](auto& value) { CarryOut(std::move(value)); }, effect);
}

void FleetBackend::Impl::CarryOut(ConnectWorker effect) {
  const ConnectionId id = effect.connection;
  const std::shared_ptr<Inbox> inbox = inbox_;
  streams_[id] = dialer_.Dial(
      effect.address,
      {.message =
           [inbox, id](wire::SessionResponse message) {
             inbox->Push(MessageEvent{id, std::move(message)});
           },
       .described =
           [inbox, id](wire::DescribeResponse description) {
             inbox->Push(DescribeEvent{id, std::move(description)});
           },
       .disconnected =
           [inbox, id](Status reason) {
             inbox->Push(DisconnectEvent{id, std::move(reason)});
           }});
  core_.OnConnected(id, clock_.Now());
}

void FleetBackend::Impl::CarryOut(DisconnectWorker effect) {
  const auto found = streams_.find(effect.connection);
  if (found == streams_.end()) return;
  found->second->Close(effect.reason);
  streams_.erase(found);
}

void FleetBackend::Impl::CarryOut(SendToWorker effect) {
  if (const auto found = streams_.find(effect.connection);
      found != streams_.end())
    found->second->Send(std::move(effect.message));
}

void FleetBackend::Impl::CarryOut(EmitOutput effect) {
  const auto found = requests_.find(effect.request_id);
  if (found == requests_.end()) return;
  Request& request = found->second;
  const AttemptRecord* attempt = nullptr;
  if (request.attempt != effect.output.attempt()) {
    request.attempt = effect.output.attempt();
    const RequestRecord* record = core_.Find(effect.request_id);
    if (record && !record->attempts.empty()) attempt = &record->attempts.back();
  }
  request.listener->OnOutput(std::move(effect.output), attempt);
}

void FleetBackend::Impl::CarryOut(EndRequest effect) {
  const auto found = requests_.find(effect.request_id);
  if (found == requests_.end()) return;
  found->second.listener->OnEnd(StatusOf(effect.reason, effect.message),
                                std::move(effect.record));
  requests_.erase(found);
}

StatusOr<std::unique_ptr<FleetBackend>> FleetBackend::Start(
    const ConductorCoreConfig& config,
    const scheduling::PlacementPolicy& placement, WorkerDialer& dialer,
    const Clock& clock, const std::vector<FleetWorker>& workers) {
  auto impl = std::make_unique<Impl>(config, placement, dialer, clock);
  RETURN_IF_ERROR(impl->AddWorkers(workers));
  impl->StartThread();
  return std::unique_ptr<FleetBackend>(new FleetBackend(std::move(impl)));
}

FleetBackend::FleetBackend(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
FleetBackend::~FleetBackend() { impl_->Stop(); }

void FleetBackend::Submit(ClientRequest request,
                          std::shared_ptr<GenerationListener> listener) {
  impl_->Submit(std::move(request), std::move(listener));
}
void FleetBackend::Cancel(std::string request_id, std::string reason) {
  impl_->Cancel(std::move(request_id), std::move(reason));
}
void FleetBackend::OnDiscovered(size_t source,
                                std::vector<std::string> addresses) {
  impl_->OnDiscovered(source, std::move(addresses));
}
std::shared_ptr<const FleetSnapshot> FleetBackend::Snapshot() const {
  return impl_->Snapshot();
}

}  // namespace tidepool::conductor
