// Calls to other workers.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/mutex.h"
#include "dataplane/rpc/security.h"
#include "dataplane/worker/worker_core.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::worker {

// Keeps a channel to each worker lately called, the least recently used of
// which is dropped above `max_channels`. Thread-safe; no call waits.
//
// Calls that ended, and the channels they hold, go on the threads that use the
// client: a channel that goes on one of gRPC's own threads, while the process
// exits, trips gRPC's shutdown.
class PeerClient {
 public:
  // On one of gRPC's threads.
  using OnReply =
      std::function<void(PeerCallId call, StatusOr<PeerResponse> response)>;

  PeerClient(rpc::Security security, OnReply on_reply, size_t max_channels)
      : security_(std::move(security)),
        on_reply_(std::move(on_reply)),
        max_channels_(max_channels) {}
  // Cancels what is under way and waits for its end.
  ~PeerClient();

  // `on_reply` is called once, at the latest soon after the deadline.
  void Call(const CallPeer& call);

 private:
  struct Channel {
    std::shared_ptr<wire::PeerService::Stub> stub;
    uint64_t last_used = 0;
  };
  struct PendingCall;
  template <typename Response>
  struct Pending;

  std::shared_ptr<wire::PeerService::Stub> StubFor(const std::string& address);
  // The client owns what is returned, until End.
  template <typename Response>
  Pending<Response>* Begin(const CallPeer& call);
  template <typename Response>
  void End(Pending<Response>* pending, const grpc::Status& status);

  const rpc::Security security_;
  const OnReply on_reply_;
  const size_t max_channels_;
  Mutex mutex_;
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Channel> channels_ ABSL_GUARDED_BY(mutex_);
  std::map<PeerCallId, std::shared_ptr<PendingCall>> under_way_
      ABSL_GUARDED_BY(mutex_);
  // At most as many as were ever under way at once.
  std::vector<std::shared_ptr<PendingCall>> done_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::worker
