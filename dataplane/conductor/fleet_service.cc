#include "dataplane/conductor/fleet_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/socket_address.h"
#include "tidepool/conductor/v1/fleet.grpc.pb.h"

namespace tidepool::conductor {
namespace {

constexpr uint32_t kIntervalMsMin = 100, kIntervalMsMax = 60'000;
constexpr std::chrono::seconds kCloseTimeout(1);

class Watchers;

// One stream. Deletes itself when gRPC is done with it.
class Watcher : public grpc::ServerWriteReactor<v1::WatchFleetResponse> {
 public:
  Watcher(Watchers& watchers, Duration interval)
      : watchers_(watchers), interval_(interval) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  friend class Watchers;

  Watchers& watchers_;
  const Duration interval_;
  // Guarded by the mutex of `watchers_`.
  v1::WatchFleetResponse report_;
  uint64_t sequence_ = 0;
  TimePoint due_{};
  bool writing_ = false, finished_ = false;
  std::optional<grpc::Status> ending_;
};

class Refused : public grpc::ServerWriteReactor<v1::WatchFleetResponse> {
 public:
  explicit Refused(const grpc::Status& reason) { Finish(reason); }
  void OnDone() override { delete this; }
};

// All streams, and the thread that serves them. Thread-safe.
class Watchers {
 public:
  Watchers(size_t max, const Clock& clock, ControlServer::Source source)
      : max_(max), clock_(clock), source_(std::move(source)) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Watchers() {
    EndAll();
    thread_.join();
    const MutexLock lock(&mutex_);
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return all_.empty();
    };
    mutex_.Await(absl::Condition(&none));
  }

  grpc::ServerWriteReactor<v1::WatchFleetResponse>* Open(Duration interval) {
    const MutexLock lock(&mutex_);
    if (stopping_)
      return new Refused({grpc::StatusCode::UNAVAILABLE, "going away"});
    if (all_.size() >= max_)
      return new Refused(
          {grpc::StatusCode::RESOURCE_EXHAUSTED,
           fmt::format("watch: {} watch already, which is the limit", max_)});
    auto* const watcher = new Watcher(*this, interval);
    all_.insert(watcher);
    changed_ = true;
    return watcher;
  }

  // No stream begins any more; those there are end.
  void EndAll() {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    for (Watcher* watcher : all_)
      End(*watcher, {grpc::StatusCode::UNAVAILABLE, "going away"});
  }

  void WriteDone(Watcher& watcher, bool ok) {
    const MutexLock lock(&mutex_);
    watcher.writing_ = false;
    changed_ = true;
    if (!ok) return End(watcher, grpc::Status::CANCELLED);
    Advance(watcher);
  }
  void Cancelled(Watcher& watcher) {
    const MutexLock lock(&mutex_);
    End(watcher, grpc::Status::CANCELLED);
  }
  void Remove(Watcher& watcher) {
    const MutexLock lock(&mutex_);
    all_.erase(&watcher);
  }

 private:
  void End(Watcher& watcher, const grpc::Status& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!watcher.ending_) watcher.ending_ = reason;
    Advance(watcher);
  }
  void Advance(Watcher& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (watcher.writing_ || watcher.finished_ || !watcher.ending_) return;
    watcher.finished_ = true;
    watcher.Finish(*watcher.ending_);
  }
  static bool IsIdle(const Watcher& watcher) {
    return !watcher.writing_ && !watcher.ending_;
  }

  // The earliest time at which one that can take a report is due.
  TimePoint NextDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TimePoint next = TimePoint::max();
    for (const Watcher* watcher : all_)
      if (IsIdle(*watcher)) next = std::min(next, watcher->due_);
    return next;
  }

  void Run() {
    while (WaitUntilDue()) {
      const v1::WatchFleetResponse report = source_();
      const TimePoint now = clock_.Now();
      const MutexLock lock(&mutex_);
      for (Watcher* watcher : all_) {
        if (!IsIdle(*watcher) || watcher->due_ > now) continue;
        watcher->due_ = now + watcher->interval_;
        watcher->report_ = report;
        watcher->report_.set_sequence(++watcher->sequence_);
        watcher->writing_ = true;
        watcher->StartWrite(&watcher->report_);
      }
    }
  }

  // False when it is to stop.
  bool WaitUntilDue() {
    const MutexLock lock(&mutex_);
    const auto news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || changed_;
    };
    while (!stopping_) {
      changed_ = false;
      const TimePoint due = NextDue();
      const TimePoint now = clock_.Now();
      if (due <= now) return true;
      const Duration longest = std::chrono::seconds(1);
      mutex_.AwaitWithTimeout(absl::Condition(&news),
                              absl::FromChrono(std::min(longest, due - now)));
    }
    return false;
  }

  const size_t max_;
  const Clock& clock_;
  const ControlServer::Source source_;
  Mutex mutex_;
  std::set<Watcher*> all_ ABSL_GUARDED_BY(mutex_);
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

void Watcher::OnWriteDone(bool ok) { watchers_.WriteDone(*this, ok); }
void Watcher::OnCancel() { watchers_.Cancelled(*this); }
void Watcher::OnDone() {
  watchers_.Remove(*this);
  delete this;
}

class GrpcControlServer final : public ControlServer,
                                private v1::FleetService::CallbackService {
 public:
  GrpcControlServer(const Options& options, const Clock& clock, Source source)
      : options_(options),
        watchers_(options.watchers_max, clock, std::move(source)) {}

  Status Listen() {
    const std::string address = HostPort(options_.host, options_.port);
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Who vanished without a word makes room for others.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
    builder.SetMaxReceiveMessageSize(4096);
    builder.AddListeningPort(
        address,
        options_.security.ServerCredentials({rpc::Component::kController}),
        &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0)
      return MakeError(Code::kAlreadyExists,
                       "--control-port: listening on {} failed: the port is "
                       "in use, or the address is not this host's",
                       address);
    return OkStatus();
  }

  ~GrpcControlServer() override {
    watchers_.EndAll();
    if (server_ != nullptr)
      server_->Shutdown(std::chrono::system_clock::now() + kCloseTimeout);
  }

  uint16_t port() const override { return static_cast<uint16_t>(port_); }

 private:
  grpc::ServerWriteReactor<v1::WatchFleetResponse>* WatchFleet(
      grpc::CallbackServerContext*,
      const v1::WatchFleetRequest* request) override {
    const uint32_t interval = request->interval_ms();
    if (interval < kIntervalMsMin || interval > kIntervalMsMax)
      return new Refused(
          {grpc::StatusCode::INVALID_ARGUMENT,
           fmt::format("interval_ms: {} is not in [{}, {}]", interval,
                       kIntervalMsMin, kIntervalMsMax)});
    return watchers_.Open(std::chrono::milliseconds(interval));
  }

  const Options options_;
  Watchers watchers_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;  // before the watchers it serves ends
};

}  // namespace

StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(
    const Options& options, const Clock& clock, Source source) {
  auto server =
      std::make_unique<GrpcControlServer>(options, clock, std::move(source));
  RETURN_IF_ERROR(server->Listen());
  return std::unique_ptr<ControlServer>(std::move(server));
}

}  // namespace tidepool::conductor
