#include "controller/reconcilers/rebalancing/fleet_watcher.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "dataplane/base/log.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/notification.h"
#include "tidepool/conductor/v1/fleet.grpc.pb.h"

namespace tidepool::reconcilers {
namespace {

namespace wire = conductor::v1;
using worker::v1::Role;

constexpr Duration kTick = std::chrono::milliseconds(250);
constexpr int kReportBytesMax = 16 << 20;

// What holds the channel of a call. It must not end on gRPC's own threads: the
// process's last channel with callbacks joins those threads.
struct Connection {
  std::unique_ptr<wire::FleetService::Stub> stub;
  std::shared_ptr<grpc::ClientContext> context;
};

std::optional<WorkerRole> FromWire(Role role) {
  switch (role) {
    case Role::ROLE_PREFILL:
      return WorkerRole::kPrefill;
    case Role::ROLE_DECODE:
      return WorkerRole::kDecode;
    default:
      return std::nullopt;
  }
}

LatencySeen FromWire(const wire::LatencyWindow& window) {
  return {.count = window.count(),
          .p50_ms = window.p50_ms(),
          .p90_ms = window.p90_ms(),
          .p95_ms = window.p95_ms(),
          .p99_ms = window.p99_ms()};
}

// "10.0.0.1" of "10.0.0.1:7000", "fd00::1" of "[fd00::1]:7000".
std::string HostOf(std::string_view address) {
  address = address.substr(0, address.rfind(':'));
  if (address.starts_with('[') && address.ends_with(']'))
    address = address.substr(1, address.size() - 2);
  return std::string(address);
}

WorkerSeen FromWire(const wire::WorkerReport& report) {
  const auto& description = report.description();
  const auto& load = report.load();
  WorkerSeen worker{
      .name = description.name().empty() ? report.name() : description.name(),
      .host = HostOf(report.address()),
      .connected = report.connected(),
      .ready = description.ready(),
      .draining = description.draining(),
      .incarnation = description.incarnation(),
      .role = FromWire(description.role()),
      .waiting_requests = load.waiting_requests(),
      .running_requests = load.running_requests(),
      .max_requests = description.max_num_seqs(),
      .queued_prefill_tokens = load.queued_prefill_tokens(),
      .prefill_tokens_per_second = load.prefill_tokens_per_second(),
      .pages_total = load.pages_total(),
      .pages_free = load.pages_free(),
  };
  if (const auto role = FromWire(description.role_state().role()))
    worker.role = role;
  worker.target = FromWire(description.role_state().target());
  return worker;
}

}  // namespace

ConductorSeen FromReport(const wire::WatchFleetResponse& report, TimePoint at) {
  ConductorSeen seen{
      .at = at,
      .waiting_requests = report.waiting_requests(),
      .waiting_for_decode = report.waiting_for_decode(),
      .waiting_prompt_tokens = report.waiting_prompt_tokens(),
      .prompt_tokens_total = report.prompt_tokens_total(),
      .cached_prompt_tokens_total = report.cached_prompt_tokens_total(),
      .ttft = FromWire(report.ttft()),
      .tbt = FromWire(report.tbt()),
  };
  seen.workers.reserve(report.workers_size());
  for (const wire::WorkerReport& worker : report.workers())
    seen.workers.push_back(FromWire(worker));
  return seen;
}

// Shared with the calls, whose ends may come late.
class FleetWatcher::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(FleetWatcherOptions options, const Keyring& keyring, const Clock& clock,
       std::function<void(const kube::ObjectKey&)> heard)
      : options_(options),
        keyring_(keyring),
        clock_(clock),
        heard_(std::move(heard)) {}

  void Start() {
    thread_ = std::jthread([this](std::stop_token stop) {
      Notification stopped;
      const std::stop_callback wake(stop, [&] { stopped.Notify(); });
      while (!stopped.WaitFor(kTick)) Tend();
    });
  }
  void Stop();
  void FollowNobody();
  void Follow(const kube::ObjectKey& family,
              const std::vector<ConductorAddress>& conductors, bool closely);
  FleetSnapshot Snapshot(const kube::ObjectKey& family) const;

  // Of the calls.
  bool Heard(const kube::ObjectKey& family, const std::string& uid,
             const grpc::ClientContext* call,
             const wire::WatchFleetResponse& report);
  void Ended(const kube::ObjectKey& family, const std::string& uid,
             Connection connection, const grpc::Status& status);

 private:
  struct Watched {
    std::string host;
    bool closely = false;
    std::shared_ptr<grpc::ClientContext> call;  // while one runs
    bool is_stream = false;                     // that call
    TimePoint began, next;  // of the call; when to begin another
    int failures = 0;
    std::optional<ConductorSeen> seen;
  };
  struct Beginning {
    kube::ObjectKey family;
    std::string uid, host;
    bool is_stream = false;
    std::shared_ptr<grpc::ClientContext> context;
  };
  using Conductors = std::map<std::string, Watched>;  // by pod uid

  void Tend();
  // Whether a call that runs should end.
  bool IsOver(const Watched& watched, TimePoint now) const;
  void Begin(const Beginning& beginning);
  Watched* Find(const kube::ObjectKey& family, const std::string& uid)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FleetWatcherOptions options_;
  const Keyring& keyring_;
  const Clock& clock_;
  const std::function<void(const kube::ObjectKey&)> heard_;

  mutable Mutex mutex_;
  std::map<kube::ObjectKey, Conductors> families_ ABSL_GUARDED_BY(mutex_);
  // Calls of conductors that are followed no more, until they have ended.
  std::vector<std::shared_ptr<grpc::ClientContext>> orphans_
      ABSL_GUARDED_BY(mutex_);
  // Of calls that have ended, until the next tick.
  std::vector<Connection> ended_ ABSL_GUARDED_BY(mutex_);
  size_t streams_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t samples_ ABSL_GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
};

// One WatchFleet; deletes itself when done.
class FleetWatcher::Call final
    : public grpc::ClientReadReactor<wire::WatchFleetResponse> {
 public:
  Call(std::shared_ptr<Impl> owner, kube::ObjectKey family, std::string uid,
       bool is_stream, std::shared_ptr<grpc::ClientContext> context,
       const rpc::Security& security, const std::string& target,
       uint32_t interval_ms)
      : owner_(std::move(owner)),
        family_(std::move(family)),
        uid_(std::move(uid)),
        is_stream_(is_stream),
        connection_{.stub = {}, .context = std::move(context)} {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kReportBytesMax);
    // Its own connection, which goes with it.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    connection_.stub = wire::FleetService::NewStub(
        security.OpenChannel(target, rpc::Component::kConductor, arguments));
    request_.set_interval_ms(interval_ms);
  }

  void Start() {
    connection_.stub->async()->WatchFleet(connection_.context.get(), &request_,
                                          this);
    StartRead(&report_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    const bool go_on =
        owner_->Heard(family_, uid_, connection_.context.get(), report_) &&
        is_stream_;
    if (go_on) {
      StartRead(&report_);
    } else {
      connection_.context->TryCancel();
    }
  }
  void OnDone(const grpc::Status& status) override {
    owner_->Ended(family_, uid_, std::move(connection_), status);
    delete this;
  }

  const std::shared_ptr<Impl> owner_;
  const kube::ObjectKey family_;
  const std::string uid_;
  const bool is_stream_;
  Connection connection_;
  wire::WatchFleetRequest request_;
  wire::WatchFleetResponse report_;
};

void FleetWatcher::Impl::Follow(const kube::ObjectKey& family,
                                const std::vector<ConductorAddress>& conductors,
                                bool closely) {
  std::vector<std::shared_ptr<grpc::ClientContext>> cancelled;
  {
    const MutexLock lock(&mutex_);
    Conductors& known = families_[family];
    for (auto it = known.begin(); it != known.end();) {
      const bool stays = std::ranges::any_of(
          conductors, [&](const ConductorAddress& conductor) {
            return conductor.uid == it->first &&
                   conductor.host == it->second.host;
          });
      if (!stays && it->second.call != nullptr) {
        cancelled.push_back(it->second.call);
        orphans_.push_back(it->second.call);
        --(it->second.is_stream ? streams_ : samples_);
      }
      it = stays ? std::next(it) : known.erase(it);
    }
    for (const ConductorAddress& conductor : conductors) {
      Watched& watched = known[conductor.uid];
      watched.host = conductor.host;
      // Who is to be followed closely now need not wait for its sample.
      if (closely && !watched.closely && watched.failures == 0)
        watched.next = TimePoint();
      watched.closely = closely;
    }
    if (known.empty()) families_.erase(family);
  }
  for (const auto& call : cancelled) call->TryCancel();
}

FleetSnapshot FleetWatcher::Impl::Snapshot(
    const kube::ObjectKey& family) const {
  const MutexLock lock(&mutex_);
  FleetSnapshot snapshot;
  const auto found = families_.find(family);
  if (found == families_.end()) return snapshot;
  for (const auto& [uid, watched] : found->second)
    if (watched.seen.has_value()) snapshot.push_back(*watched.seen);
  return snapshot;
}

FleetWatcher::Impl::Watched* FleetWatcher::Impl::Find(
    const kube::ObjectKey& family, const std::string& uid) {
  const auto conductors = families_.find(family);
  if (conductors == families_.end()) return nullptr;
  const auto watched = conductors->second.find(uid);
  return watched == conductors->second.end() ? nullptr : &watched->second;
}

bool FleetWatcher::Impl::Heard(const kube::ObjectKey& family,
                               const std::string& uid,
                               const grpc::ClientContext* call,
                               const wire::WatchFleetResponse& report) {
  ConductorSeen seen = FromReport(report, clock_.Now());
  bool is_news = false;
  {
    const MutexLock lock(&mutex_);
    Watched* const watched = Find(family, uid);
    if (watched == nullptr || watched->call.get() != call) return false;
    is_news = !watched->seen.has_value() || !watched->is_stream;
    watched->seen = std::move(seen);
    watched->failures = 0;
  }
  if (is_news) heard_(family);
  return true;
}

void FleetWatcher::Impl::Ended(const kube::ObjectKey& family,
                               const std::string& uid, Connection connection,
                               const grpc::Status& status) {
  const TimePoint now = clock_.Now();
  const grpc::ClientContext* const call = connection.context.get();
  const MutexLock lock(&mutex_);
  ended_.push_back(std::move(connection));
  std::erase_if(orphans_,
                [call](const auto& orphan) { return orphan.get() == call; });
  Watched* const watched = Find(family, uid);
  if (watched == nullptr || watched->call.get() != call) return;
  --(watched->is_stream ? streams_ : samples_);
  const bool spoke =
      watched->seen.has_value() && watched->seen->at >= watched->began;
  watched->call.reset();
  if (spoke) {
    watched->next = now + (watched->closely ? options_.retry_min
                                            : options_.sample_interval);
    return;
  }
  const int doublings = std::min(watched->failures++, 10);
  watched->next =
      now + std::min(options_.retry_max, options_.retry_min * (1 << doublings));
  if (doublings == 0)
    LOG_DEBUG("{}: conductor {}: {}", family.ToString(), watched->host,
              status.error_message());
}

bool FleetWatcher::Impl::IsOver(const Watched& watched, TimePoint now) const {
  if (watched.call == nullptr) return false;
  const TimePoint heard = watched.seen.has_value()
                              ? std::max(watched.seen->at, watched.began)
                              : watched.began;
  return now - heard > options_.silence_max ||
         (watched.is_stream && !watched.closely);
}

void FleetWatcher::Impl::Tend() {
  std::vector<Beginning> beginnings;
  std::vector<std::shared_ptr<grpc::ClientContext>> over;
  std::vector<Connection> ended;
  const TimePoint now = clock_.Now();
  {
    const MutexLock lock(&mutex_);
    ended.swap(ended_);
    for (auto& [family, conductors] : families_) {
      for (auto& [uid, watched] : conductors) {
        if (IsOver(watched, now)) over.push_back(watched.call);
        if (watched.call != nullptr || now < watched.next) continue;
        const bool is_stream =
            watched.closely && streams_ < options_.streams_max;
        if (!is_stream && samples_ >= options_.samples_at_once) continue;
        ++(is_stream ? streams_ : samples_);
        watched.call = std::make_shared<grpc::ClientContext>();
        watched.is_stream = is_stream;
        watched.began = now;
        beginnings.push_back(
            {family, uid, watched.host, is_stream, watched.call});
      }
    }
  }
  // Outside the lock: gRPC may call back from within.
  for (const auto& call : over) call->TryCancel();
  for (const Beginning& beginning : beginnings) Begin(beginning);
}

void FleetWatcher::Impl::Begin(const Beginning& beginning) {
  const std::optional<rpc::Security> security =
      keyring_.SecurityOf(beginning.family);
  if (!security.has_value())
    return Ended(beginning.family, beginning.uid,
                 {.stub = {}, .context = beginning.context},
                 {grpc::StatusCode::UNAVAILABLE, "no certificate yet"});
  const bool is_v6 = beginning.host.find(':') != std::string::npos;
  const std::string target =
      is_v6 ? fmt::format("ipv6:[{}]:{}", beginning.host, options_.port)
            : fmt::format("ipv4:{}:{}", beginning.host, options_.port);
  const auto interval = std::chrono::duration_cast<std::chrono::milliseconds>(
      options_.report_interval);
  auto* const call =
      new Call(shared_from_this(), beginning.family, beginning.uid,
               beginning.is_stream, beginning.context, *security, target,
               static_cast<uint32_t>(interval.count()));
  call->Start();
}

void FleetWatcher::Impl::FollowNobody() {
  std::vector<kube::ObjectKey> families;
  {
    const MutexLock lock(&mutex_);
    for (const auto& [family, conductors] : families_)
      families.push_back(family);
  }
  for (const kube::ObjectKey& family : families) Follow(family, {}, false);
}

void FleetWatcher::Impl::Stop() {
  thread_.request_stop();
  thread_.join();
  FollowNobody();
  const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return orphans_.empty();
  };
  std::vector<Connection> last;
  const MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&ended));
  last.swap(ended_);
}

FleetWatcher::FleetWatcher(FleetWatcherOptions options, const Keyring& keyring,
                           const Clock& clock,
                           std::function<void(const kube::ObjectKey&)> heard)
    : impl_(std::make_shared<Impl>(options, keyring, clock, std::move(heard))) {
  impl_->Start();
}

FleetWatcher::~FleetWatcher() { impl_->Stop(); }

void FleetWatcher::Follow(const kube::ObjectKey& family,
                          const std::vector<ConductorAddress>& conductors,
                          bool closely) {
  impl_->Follow(family, conductors, closely);
}

void FleetWatcher::FollowNobody() { impl_->FollowNobody(); }

FleetSnapshot FleetWatcher::Snapshot(const kube::ObjectKey& family) const {
  return impl_->Snapshot(family);
}

}  // namespace tidepool::reconcilers
