#include "dataplane/fleet/fleet_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/time/time.h"
#include "dataplane/base/mutex.h"
#include "tidepool/conductor/v1/fleet.grpc.pb.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::fleet {
namespace {

using conductor::v1::FleetService;
using conductor::v1::WatchFleetRequest;
using worker::v1::WorkerService;

constexpr absl::Duration kFarewellMax = absl::Seconds(5);

Status FromGrpc(const grpc::Status& status) {
  return MakeError(static_cast<Code>(status.error_code()), "{}",
                   status.error_message());
}

// Something that gRPC holds on to until it says otherwise.
class Call {
 public:
  virtual ~Call() = default;
  virtual void Cancel() = 0;
};

// What calls report to; they may outlive the client. Calls that are done end on
// the threads that use the client: a channel that ends on one of gRPC's own
// threads, while the process exits, trips gRPC's shutdown. Thread-safe.
class Desk {
 public:
  explicit Desk(const Clock& clock) : clock_(clock) {}

  // Keeps the call until it is done.
  void Opened(std::shared_ptr<Call> call) {
    const MutexLock lock(&mutex_);
    open_[call.get()] = std::move(call);
  }
  void Heard(const Call* call, WatchFleetResponse report) {
    const MutexLock lock(&mutex_);
    for (auto& [address, watch] : watches_) {
      if (watch.call != call) continue;
      watch.told = {.address = address,
                    .report = std::make_shared<const WatchFleetResponse>(
                        std::move(report)),
                    .at = clock_.Now()};
      watch.last_sign = watch.told.at;
      return;
    }
  }
  void WatchEnded(Call* call, const Status& status) {
    const MutexLock lock(&mutex_);
    Retire(call);
    for (auto& [address, watch] : watches_) {
      if (watch.call != call) continue;
      watch.call = nullptr;
      watch.last_sign = clock_.Now();
      watch.told.status = status.ok() ? Unavailable("the watch ended") : status;
      return;
    }
  }
  void Answered(Call* call, FleetClient::RoleAnswer answer) {
    const MutexLock lock(&mutex_);
    Retire(call);
    --role_calls_;
    answers_.push_back(std::move(answer));
  }

 private:
  friend class GrpcFleetClient;
  struct Watch {
    Call* call = nullptr;    // owned by `open_` until it ended
    TimePoint last_sign{};   // of life; or of the end
    ConductorReport told{};  // with `status` while `call` is null
  };

  void Retire(Call* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto open = open_.find(call);
    if (open == open_.end()) return;
    done_.push_back(std::move(open->second));
    open_.erase(open);
  }

  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<std::string, Watch> watches_ ABSL_GUARDED_BY(mutex_);
  std::vector<FleetClient::RoleAnswer> answers_ ABSL_GUARDED_BY(mutex_);
  size_t role_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Call*, std::shared_ptr<Call>> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Call>> done_ ABSL_GUARDED_BY(mutex_);
};

class WatchCall : public Call,
                  public grpc::ClientReadReactor<WatchFleetResponse> {
 public:
  WatchCall(const std::shared_ptr<grpc::Channel>& channel,
            std::shared_ptr<Desk> desk, uint32_t interval_ms)
      : stub_(FleetService::NewStub(channel)), desk_(std::move(desk)) {
    request_.set_interval_ms(interval_ms);
  }

  void Start() {
    stub_->async()->WatchFleet(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    desk_->Heard(this, std::exchange(response_, {}));
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    // Nothing of this object is touched after it was handed over.
    const std::shared_ptr<Desk> desk = desk_;
    desk->WatchEnded(this, FromGrpc(status));
  }

 private:
  const std::unique_ptr<FleetService::Stub> stub_;
  const std::shared_ptr<Desk> desk_;
  grpc::ClientContext context_;
  WatchFleetRequest request_;
  WatchFleetResponse response_;  // owned by the read under way
};

class SetRoleCall : public Call {
 public:
  SetRoleCall(const std::shared_ptr<grpc::Channel>& channel,
              std::shared_ptr<Desk> desk, RoleCall call)
      : stub_(WorkerService::NewStub(channel)),
        desk_(std::move(desk)),
        call_(std::move(call)) {}

  void Start(Duration timeout) {
    context_.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                     gpr_time_from_nanos(timeout.count(), GPR_TIMESPAN)));
    stub_->async()->SetRole(
        &context_, &call_.request, &response_,
        [this](const grpc::Status& status) {
          const std::shared_ptr<Desk> desk = desk_;
          if (status.ok())
            desk->Answered(this, {call_.id, response_.state()});
          else
            desk->Answered(this, {call_.id, FromGrpc(status)});
        });
  }
  void Cancel() override { context_.TryCancel(); }

 private:
  const std::unique_ptr<WorkerService::Stub> stub_;
  const std::shared_ptr<Desk> desk_;
  const RoleCall call_;
  grpc::ClientContext context_;
  worker::v1::SetRoleResponse response_;
};

class GrpcFleetClient : public FleetClient {
 public:
  GrpcFleetClient(const Options& options, const Clock& clock)
      : options_(options), desk_(std::make_shared<Desk>(clock)) {}

  ~GrpcFleetClient() override {
    std::vector<std::shared_ptr<Call>> done;
    const MutexLock lock(&desk_->mutex_);
    for (const auto& [key, call] : desk_->open_) call->Cancel();
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(desk_->mutex_) {
      return desk_->open_.empty();
    };
    desk_->mutex_.AwaitWithTimeout(absl::Condition(&none), kFarewellMax);
    done.swap(desk_->done_);
  }

  void Watch(std::span<const std::string> addresses) override {
    std::vector<std::string> missing;
    {
      const MutexLock lock(&desk_->mutex_);
      DropAllBut(addresses);
      missing = Broken(addresses);
    }
    for (const std::string& address : missing) Open(address);
    Bury();
  }

  std::vector<ConductorReport> Reports() const override {
    const MutexLock lock(&desk_->mutex_);
    std::vector<ConductorReport> reports;
    for (const auto& [address, watch] : desk_->watches_)
      reports.push_back(watch.told);
    return reports;
  }

  void SetRole(const RoleCall& call) override {
    {
      const MutexLock lock(&desk_->mutex_);
      if (desk_->role_calls_ >= options_.calls_max) {
        desk_->answers_.push_back(
            {call.id,
             ResourceExhausted("{} calls are under way", desk_->role_calls_)});
        return;
      }
      ++desk_->role_calls_;
    }
    const auto made = std::make_shared<SetRoleCall>(
        Dial(call.address, rpc::Component::kWorker), desk_, call);
    desk_->Opened(made);
    made->Start(options_.call_timeout);
  }

  std::vector<RoleAnswer> TakeAnswers() override {
    Bury();
    const MutexLock lock(&desk_->mutex_);
    return std::exchange(desk_->answers_, {});
  }

 private:
  void DropAllBut(std::span<const std::string> addresses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(desk_->mutex_) {
    std::erase_if(desk_->watches_, [&](const auto& entry) {
      if (std::ranges::find(addresses, entry.first) != addresses.end())
        return false;
      if (entry.second.call != nullptr) entry.second.call->Cancel();
      return true;
    });
  }

  // Those to dial now. Ends watches that are silent: they are due later.
  std::vector<std::string> Broken(std::span<const std::string> addresses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(desk_->mutex_) {
    const TimePoint now = desk_->clock_.Now();
    std::vector<std::string> due;
    for (const std::string& address : addresses) {
      const bool known = desk_->watches_.contains(address);
      if (!known && desk_->watches_.size() >= options_.conductors_max) continue;
      Desk::Watch& watch = desk_->watches_[address];
      watch.told.address = address;
      const Duration quiet = now - watch.last_sign;
      if (watch.call != nullptr) {
        if (quiet > options_.report_interval + options_.silence_max)
          watch.call->Cancel();
      } else if (!known || quiet >= options_.redial_pause) {
        due.push_back(address);
      }
    }
    return due;
  }

  void Open(const std::string& address) {
    const auto interval_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(
            options_.report_interval)
            .count();
    const auto call =
        std::make_shared<WatchCall>(Dial(address, rpc::Component::kConductor),
                                    desk_, static_cast<uint32_t>(interval_ms));
    {
      const MutexLock lock(&desk_->mutex_);
      const auto watch = desk_->watches_.find(address);
      // Another thread may have changed its mind.
      if (watch == desk_->watches_.end() || watch->second.call != nullptr)
        return;
      watch->second.call = call.get();
      watch->second.last_sign = desk_->clock_.Now();
      desk_->open_[call.get()] = call;
    }
    call->Start();
  }

  // A channel of its own for each call: when to dial again is decided here
  // alone, not by the backoff of an earlier channel.
  std::shared_ptr<grpc::Channel> Dial(const std::string& address,
                                      rpc::Component expected) const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(options_.message_bytes_max);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return options_.security.OpenChannel(address, expected, arguments);
  }

  void Bury() {
    std::vector<std::shared_ptr<Call>> done;
    const MutexLock lock(&desk_->mutex_);
    done.swap(desk_->done_);
  }

  const Options options_;
  const std::shared_ptr<Desk> desk_;
};

}  // namespace

std::unique_ptr<FleetClient> FleetClient::Create(const Options& options,
                                                 const Clock& clock) {
  return std::make_unique<GrpcFleetClient>(options, clock);
}

}  // namespace tidepool::fleet
