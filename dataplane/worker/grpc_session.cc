#include "dataplane/worker/grpc_session.h"

#include <utility>
#include <vector>

#include "dataplane/base/check.h"
#include "dataplane/base/log.h"
#include "dataplane/worker/grpc_status.h"

namespace tidepool::worker {

// One stream: at most one read and one write are under way. Deletes itself
// when gRPC is done with it.
class SessionReactor
    : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse> {
 public:
  SessionReactor(SessionRegistry& registry, uint64_t id,
                 grpc::CallbackServerContext* context)
      : registry_(registry), id_(id), context_(context) {}

  void Begin() { StartRead(&incoming_); }

  void OnReadDone(bool ok) override {
    if (!ok) return End(OkStatus());  // the conductor is gone
    if (registry_.handlers_.on_message(id_, std::move(incoming_))) {
      incoming_ = {};
      return StartRead(&incoming_);
    }
    End(ResourceExhausted("session: too many messages are waiting here"));
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) {
      queue_.clear();
      ending_ = true;
    }
    Advance();
  }

  void OnCancel() override { End(OkStatus()); }

  void OnDone() override {
    registry_.Remove(id_);
    registry_.handlers_.on_closed(id_);
    delete this;
  }

  void Send(v1::SessionResponse message) {
    const MutexLock lock(&mutex_);
    if (ending_) return;
    if (queue_.size() >= registry_.max_queued_messages_) {
      LOG_WARNING("session {}: the conductor does not read its messages", id_);
      queue_.clear();
      end_status_ = ResourceExhausted("session: messages are not read");
      ending_ = true;
      // The write under way may never end by itself.
      context_->TryCancel();
      return Advance();
    }
    queue_.push_back(std::move(message));
    Advance();
  }

  void End(const Status& reason) {
    const MutexLock lock(&mutex_);
    if (!ending_) end_status_ = reason;
    ending_ = true;
    Advance();
  }

 private:
  // What there is to do next, if it can be done.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      outgoing_ = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
      StartWrite(&outgoing_);
    } else if (ending_) {
      finished_ = true;
      Finish(ToGrpc(end_status_));
    }
  }

  SessionRegistry& registry_;
  const uint64_t id_;
  grpc::CallbackServerContext* const context_;
  v1::SessionRequest incoming_;

  Mutex mutex_;
  v1::SessionResponse outgoing_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::SessionResponse> queue_ ABSL_GUARDED_BY(mutex_);
  Status end_status_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {

class RefusedSession
    : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse> {
 public:
  explicit RefusedSession(const Status& reason) { Finish(ToGrpc(reason)); }
  void OnDone() override { delete this; }
};

}  // namespace

SessionRegistry::~SessionRegistry() {
  const MutexLock lock(&mutex_);
  CHECK(sessions_.empty());
}

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>*
SessionRegistry::Open(grpc::CallbackServerContext* context) {
  SessionReactor* reactor;
  {
    const MutexLock lock(&mutex_);
    if (sessions_.size() >= max_sessions_)
      return new RefusedSession(
          ResourceExhausted("session: at most {}", max_sessions_));
    const uint64_t id = next_id_++;
    reactor = new SessionReactor(*this, id, context);
    sessions_[id] = reactor;
  }
  reactor->Begin();
  return reactor;
}

// The registry's lock keeps the reactor alive: it leaves the registry, under
// the same lock, before it goes.
void SessionRegistry::Send(uint64_t session, v1::SessionResponse message) {
  const MutexLock lock(&mutex_);
  const auto found = sessions_.find(session);
  if (found != sessions_.end()) found->second->Send(std::move(message));
}

void SessionRegistry::End(uint64_t session, const Status& reason) {
  const MutexLock lock(&mutex_);
  const auto found = sessions_.find(session);
  if (found != sessions_.end()) found->second->End(reason);
}

void SessionRegistry::EndAll(const Status& reason) {
  const MutexLock lock(&mutex_);
  for (const auto& [id, reactor] : sessions_) reactor->End(reason);
}

void SessionRegistry::Remove(uint64_t session) {
  const MutexLock lock(&mutex_);
  sessions_.erase(session);
}

}  // namespace tidepool::worker
