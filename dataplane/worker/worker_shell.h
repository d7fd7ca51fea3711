// A worker process: its ports, threads and life around the WorkerCore.
#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "dataplane/base/http_endpoints.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/notification.h"
#include "dataplane/rpc/security.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/worker/grpc_service.h"
#include "dataplane/worker/grpc_session.h"
#include "dataplane/worker/worker_options.h"
#include "dataplane/worker/worker_shell_runtime.h"

namespace tidepool::worker {

// Thread-safe.
class WorkerShell {
 public:
  // Listens on all ports, then loads the model in the background; `on_failed`,
  // on the loading thread, is told if that does not succeed.
  // Errors: kUnavailable or kAlreadyExists (port in use), kInvalidArgument,
  // those of rpc::Security::Load.
  static StatusOr<std::unique_ptr<WorkerShell>> Start(
      const WorkerOptions& options, std::function<void(Status)> on_failed);
  // Ends everything that still runs.
  ~WorkerShell();

  std::string control_address() const;
  std::string transfer_address() const;
  std::optional<uint16_t> metrics_port() const;

  // Takes no new requests; those not done after `timeout` are handed back to
  // their conductors.
  void Drain(Duration timeout);
  // Whether all requests have ended (or the model never was there), after at
  // most `timeout`.
  bool WaitUntilIdle(Duration timeout);

  wire::DescribeResponse Describe() const;

 private:
  WorkerShell(const WorkerOptions& options,
              std::function<void(Status)> on_failed);
  Status Listen();
  void SetRole(const wire::SetRoleRequest& request,
               const WorkerService::RoleReply& reply);
  // What the HTTP port answers.
  HttpAnswer Answer(std::string_view path) const;
  void Load(std::stop_token stop);
  Status LoadAndServe(std::stop_token stop);

  const WorkerOptions options_;
  const std::function<void(Status)> on_failed_;
  transfer::TransportPolicy policy_ = transfer::TransportPolicy::kAuto;
  rpc::Security security_;

  mutable Mutex mutex_;
  wire::DescribeResponse description_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<transfer::Messenger> messenger_;
  SessionRegistry sessions_;
  PeerService peer_service_;
  WorkerService worker_service_;
  std::unique_ptr<WorkerRuntime> runtime_owner_;
  // Set once, when there is a model.
  std::atomic<WorkerRuntime*> runtime_ = nullptr;
  std::unique_ptr<HttpEndpoints> http_;
  int control_port_ = 0;
  std::string transfer_address_;  // the host in digits
  std::unique_ptr<grpc::Server> server_;
  std::jthread loader_;
};

}  // namespace tidepool::worker
