// Runs a WorkerCore and its engine on two threads, and does what it asks for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "dataplane/base/mutex.h"
#include "dataplane/base/notification.h"
#include "dataplane/rpc/security.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/worker/grpc_peer_client.h"
#include "dataplane/worker/grpc_service.h"
#include "dataplane/worker/grpc_session.h"
#include "dataplane/worker/worker_core.h"
#include "dataplane/worker/worker_shell_engine.h"
#include "dataplane/worker/worker_shell_inbox.h"
#include "dataplane/worker/worker_shell_streams.h"

namespace tidepool::worker {

struct WorkerSnapshot {
  engine::EngineStats engine;
  WorkerCoreStats core;
  wire::RoleState role;
  TimePoint turned_at{};  // when the core's thread last did something
  std::optional<TimePoint> step_since;  // of the step that runs
};

// Thread-safe. Destroying it stops at once, after the step that runs.
class WorkerRuntime : private engine::LayerObserver {
 public:
  // `description` as the hello says it. All references outlive the runtime.
  WorkerRuntime(LoadedEngine loaded, const wire::DescribeResponse& description,
                transfer::TransportPolicy policy,
                transfer::Messenger& messenger, transfer::MemoryRegion region,
                SessionRegistry& sessions, PeerService& peers,
                const rpc::Security& security);
  ~WorkerRuntime() override;

  // False if too much waits already.
  bool OnSessionMessage(SessionId session, wire::SessionRequest message);
  bool OnPeerCall(IncomingCallId call, PeerRequest request);
  void OnSessionClosed(SessionId session);

  // `reply` is called on the core's thread. False, without it, if too much
  // waits already.
  bool SetRole(const wire::SetRoleRequest& request,
               std::function<void(StatusOr<wire::RoleState>)> reply);

  // What is not done after `timeout` is handed back.
  void Drain(Duration timeout);
  // Draining, and nothing is left to do.
  const Notification& idle() const { return idle_; }
  WorkerSnapshot snapshot() const;

 private:
  void RunCore();
  void RefreshSnapshot();
  void RunEngine();
  void OnLayer(const engine::StepPlan& plan, int32_t layer) override;

  void Perform(SendToConductor effect);
  void Perform(EndSession effect);
  void Perform(CallPeer effect);
  void Perform(ReplyToPeer effect);
  void Perform(GrantCapability effect);
  void Perform(RevokeCapability effect);
  void Perform(RunStep effect);
  void Perform(AddFinalPages effect);
  void Perform(OpenStream effect);
  void Perform(CloseStream effect);

  SessionRegistry& sessions_;
  PeerService& peers_;
  LoadedEngine loaded_;
  Inbox inbox_;
  MemoryGrants grants_;
  StreamSender streams_;
  transfer::MemoryRegion region_;  // before what its batches complete into
  PeerClient client_;
  WorkerCore core_;  // confined to the core's thread
  bool draining_ = false;
  Notification idle_;

  mutable Mutex mutex_;
  WorkerSnapshot snapshot_ ABSL_GUARDED_BY(mutex_);
  const engine::StepPlan* plan_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Written by the engine's thread while a step runs, read by the core's when
  // it is done.
  engine::StepResult result_;
  std::thread engine_thread_, core_thread_;
};

}  // namespace tidepool::worker
