// The two services of a worker, as gRPC knows them: validate, delegate,
// translate.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "absl/functional/any_invocable.h"
#include "dataplane/base/mutex.h"
#include "dataplane/rpc/security.h"
#include "dataplane/worker/grpc_session.h"
#include "dataplane/worker/worker_core.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::worker {

// Sessions are for conductors, roles are set by controllers, and everybody of
// the fleet may ask what this is.
class WorkerService final : public wire::WorkerService::CallbackService {
 public:
  using RoleReply = std::function<void(StatusOr<wire::RoleState>)>;
  // Calls `reply` once, on any thread.
  using OnSetRole =
      std::function<void(const wire::SetRoleRequest& request, RoleReply reply)>;

  // `security` outlives the service.
  WorkerService(const rpc::Security& security, SessionRegistry& sessions,
                std::function<wire::DescribeResponse()> describe,
                OnSetRole set_role)
      : security_(security),
        sessions_(sessions),
        describe_(std::move(describe)),
        set_role_(std::move(set_role)) {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const wire::DescribeRequest* request,
                                     wire::DescribeResponse* response) override;
  // Errors: UNAVAILABLE while the model loads, PERMISSION_DENIED.
  grpc::ServerBidiReactor<wire::SessionRequest, wire::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* SetRole(grpc::CallbackServerContext* context,
                                    const wire::SetRoleRequest* request,
                                    wire::SetRoleResponse* response) override;

 private:
  const rpc::Security& security_;
  SessionRegistry& sessions_;
  const std::function<wire::DescribeResponse()> describe_;
  const OnSetRole set_role_;
};

// Calls of other workers, and of nobody else, that wait for the core's answer.
// Thread-safe.
class PeerService final : public wire::PeerService::CallbackService {
 public:
  // False if it cannot be taken now.
  using OnCall = std::function<bool(IncomingCallId call, PeerRequest request)>;

  // `security` outlives the service.
  PeerService(const rpc::Security& security, OnCall on_call, size_t max_calls)
      : security_(security),
        on_call_(std::move(on_call)),
        max_calls_(max_calls) {}

  grpc::ServerUnaryReactor* Reserve(grpc::CallbackServerContext* context,
                                    const wire::ReserveRequest* request,
                                    wire::ReserveResponse* response) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context,
                                   const wire::CommitRequest* request,
                                   wire::CommitResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const wire::AbortRequest* request,
                                  wire::AbortResponse* response) override;

  void Reply(IncomingCallId call, StatusOr<PeerResponse> response);
  // Answers every call that waits, now and later.
  void FailAll(const Status& reason);

 private:
  using Finish = absl::AnyInvocable<void(StatusOr<PeerResponse>)>;

  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Take(grpc::CallbackServerContext* context,
                                 const Request& request, Response* response);
  Finish TakeOut(IncomingCallId call);  // null if there is none

  const rpc::Security& security_;
  const OnCall on_call_;
  const size_t max_calls_;
  Mutex mutex_;
  IncomingCallId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<IncomingCallId, Finish> waiting_ ABSL_GUARDED_BY(mutex_);
  Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::worker
