#include "controller/reconcilers/rebalancing/role_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <vector>

#include "dataplane/base/log.h"
#include "dataplane/base/mutex.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::reconcilers {
namespace {

namespace wire = worker::v1;

constexpr int64_t kDrainMsMax = 3'600'000;

struct Call {
  std::string worker;
  std::unique_ptr<wire::WorkerService::Stub> stub;
  grpc::ClientContext context;
  wire::SetRoleRequest request;
  wire::SetRoleResponse response;
};

std::unique_ptr<wire::WorkerService::Stub> StubOf(const rpc::Security& security,
                                                  const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return wire::WorkerService::NewStub(
      security.OpenChannel(address, rpc::Component::kWorker, arguments));
}

}  // namespace

class RoleClient::Impl {
 public:
  Impl(const Keyring& keyring, RoleClientOptions options)
      : keyring_(keyring), options_(options) {}
  ~Impl() {
    std::vector<Call*> running;
    {
      const MutexLock lock(&mutex_);
      for (Call& call : calls_) running.push_back(&call);
    }
    // Outside the lock: gRPC may call back from within. They stay until this
    // ends, in one list or the other.
    for (Call* const call : running) call->context.TryCancel();
    const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return calls_.empty();
    };
    const MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&ended));
  }

  void Begin(const RoleRequest& asked) {
    const std::optional<rpc::Security> security =
        keyring_.SecurityOf(asked.family);
    if (!security.has_value()) {
      LOG_WARNING("{}: no certificate yet to ask it with", asked.worker);
      return;
    }
    std::list<Call> begun(1), ended;
    Call& call = begun.front();
    call.worker = asked.worker;
    call.stub = StubOf(*security, asked.address);
    call.context.set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::milliseconds>(
            options_.deadline));
    wire::SetRoleRequest& request = call.request;
    request.set_role(asked.role == WorkerRole::kPrefill ? wire::ROLE_PREFILL
                                                        : wire::ROLE_DECODE);
    request.mutable_epoch()->set_term(asked.term);
    request.mutable_epoch()->set_sequence(asked.sequence);
    request.set_incarnation(asked.incarnation);
    request.set_drain_timeout_ms(static_cast<uint32_t>(std::clamp<int64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(
            asked.drain_timeout)
            .count(),
        0, kDrainMsMax)));
    {
      const MutexLock lock(&mutex_);
      ended.swap(ended_);
      if (calls_.size() >= options_.calls_max) {
        LOG_WARNING("too many role changes under way: {} waits", asked.worker);
        return;
      }
      calls_.splice(calls_.end(), begun);
    }
    call.stub->async()->SetRole(
        &call.context, &call.request, &call.response,
        [this, &call](const grpc::Status& status) { End(call, status); });
  }

 private:
  void End(const Call& call, const grpc::Status& status) {
    const wire::SetRoleRequest& request = call.request;
    if (status.ok()) {
      LOG_INFO("{}: asked to become {} (epoch {}.{})", call.worker,
               wire::Role_Name(request.role()), request.epoch().term(),
               request.epoch().sequence());
    } else {
      LOG_WARNING("{}: asked to become {}: {}", call.worker,
                  wire::Role_Name(request.role()), status.error_message());
    }
    const MutexLock lock(&mutex_);
    const auto found = std::ranges::find(
        calls_, &call, [](const Call& running) { return &running; });
    ended_.splice(ended_.end(), calls_, found);
  }

  const Keyring& keyring_;
  const RoleClientOptions options_;
  Mutex mutex_;
  std::list<Call> calls_ ABSL_GUARDED_BY(mutex_);
  // They end on the threads that ask: the process's last channel with
  // callbacks joins gRPC's own threads.
  std::list<Call> ended_ ABSL_GUARDED_BY(mutex_);
};

RoleClient::RoleClient(const Keyring& keyring, RoleClientOptions options)
    : impl_(std::make_unique<Impl>(keyring, options)) {}

RoleClient::~RoleClient() = default;

void RoleClient::SetRole(const RoleRequest& request) { impl_->Begin(request); }

}  // namespace tidepool::reconcilers
