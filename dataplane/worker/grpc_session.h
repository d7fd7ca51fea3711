// Conductors' streams, as gRPC knows them.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "dataplane/base/mutex.h"
#include "dataplane/base/status.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::worker {

class SessionReactor;

// All open sessions. Thread-safe; no call waits for the network.
class SessionRegistry {
 public:
  struct Handlers {
    // False if it cannot be taken now: the session ends.
    std::function<bool(uint64_t session,
                       ::tidepool::worker::v1::SessionRequest message)>
        on_message;
    std::function<void(uint64_t session)> on_closed;
  };

  SessionRegistry(Handlers handlers, size_t max_sessions,
                  size_t max_queued_messages)
      : handlers_(std::move(handlers)),
        max_sessions_(max_sessions),
        max_queued_messages_(max_queued_messages) {}
  ~SessionRegistry();

  // The reactor of a new stream, which owns itself.
  grpc::ServerBidiReactor<::tidepool::worker::v1::SessionRequest,
                          ::tidepool::worker::v1::SessionResponse>*
  Open(grpc::CallbackServerContext* context);

  // Queues a message; a conductor that does not read its messages loses the
  // session. Nothing happens if it has ended.
  void Send(uint64_t session, ::tidepool::worker::v1::SessionResponse message);
  // Sends what is queued, then ends the session.
  void End(uint64_t session, const Status& reason);
  void EndAll(const Status& reason);

 private:
  friend class SessionReactor;
  void Remove(uint64_t session);

  const Handlers handlers_;
  const size_t max_sessions_, max_queued_messages_;
  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, SessionReactor*> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::worker
