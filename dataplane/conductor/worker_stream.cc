#include "dataplane/conductor/worker_stream.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <utility>

#include "dataplane/base/mutex.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::conductor {
namespace {

using worker::v1::SessionRequest;
using worker::v1::SessionResponse;

// Calls to Start… come from any thread, so a hold keeps the call open until
// nothing more is to be started.
class GrpcStream
    : public WorkerStream,
      public grpc::ClientBidiReactor<SessionRequest, SessionResponse> {
 public:
  GrpcStream(const std::shared_ptr<grpc::Channel>& channel,
             size_t send_queue_max, Events events)
      : stub_(worker::v1::WorkerService::NewStub(channel)),
        send_queue_max_(send_queue_max),
        events_(std::move(events)) {}

  // Keeps itself alive until OnDone.
  void Open(std::shared_ptr<GrpcStream> self) {
    const MutexLock lock(&mutex_);
    self_ = std::move(self);
    stub_->async()->Session(&context_, this);
    AddHold();
    StartRead(&response_);
    StartCall();
  }

  void Send(SessionRequest message) override {
    const MutexLock lock(&mutex_);
    if (!open_) return;
    if (queue_.size() >= send_queue_max_) {
      end_status_ = ResourceExhausted(
          "{} messages wait to be sent: the worker takes none", queue_.size());
      return End();
    }
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  void ReadNext() override {
    const MutexLock lock(&mutex_);
    if (open_) StartRead(&response_);
  }

  void Close(std::string_view) override {
    const MutexLock lock(&mutex_);
    closed_ = true;
    if (open_) End();
  }

  void OnReadDone(bool ok) override {
    {
      const MutexLock lock(&mutex_);
      if (!ok && open_) End();
      if (!ok || closed_) return;
    }
    events_.message(std::exchange(response_, {}));
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(&mutex_);
    queue_.pop_front();
    if (!open_) return;
    if (!ok) return End();
    if (!queue_.empty()) StartWrite(&queue_.front());
  }

  void OnDone(const grpc::Status& status) override {
    std::shared_ptr<GrpcStream> self;
    bool report = false;
    Status reason;
    {
      const MutexLock lock(&mutex_);
      self = std::move(self_);
      report = !closed_;
      reason = !end_status_.ok() ? end_status_
               : status.ok()     ? Unavailable("the worker ended the session")
                             : MakeError(static_cast<Code>(status.error_code()),
                                         "{}", status.error_message());
    }
    if (report) events_.disconnected(reason);
  }

 private:
  // Nothing is started after this; OnDone follows.
  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    open_ = false;
    context_.TryCancel();
    RemoveHold();
  }

  const std::unique_ptr<worker::v1::WorkerService::Stub> stub_;
  const size_t send_queue_max_;
  const Events events_;
  grpc::ClientContext context_;
  SessionResponse response_;  // owned by the read under way

  Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  Status end_status_ ABSL_GUARDED_BY(mutex_);
  // The front is being written. A deque, for its elements do not move.
  std::deque<SessionRequest> queue_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<GrpcStream> self_ ABSL_GUARDED_BY(mutex_);
};

class GrpcDialer : public WorkerDialer {
 public:
  explicit GrpcDialer(const GrpcDialerOptions& options) : options_(options) {}

  std::shared_ptr<WorkerStream> Dial(const std::string& address,
                                     WorkerStream::Events events) override {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(options_.message_bytes_max);
    arguments.SetMaxSendMessageSize(options_.message_bytes_max);
    // A channel of its own for each stream: when to try again is decided by
    // the core's backoff alone, not by that of an earlier channel.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), arguments);
    auto stream = std::make_shared<GrpcStream>(channel, options_.send_queue_max,
                                               std::move(events));
    stream->Open(stream);
    return stream;
  }

 private:
  const GrpcDialerOptions options_;
};

}  // namespace

std::unique_ptr<WorkerDialer> MakeGrpcDialer(const GrpcDialerOptions& options) {
  return std::make_unique<GrpcDialer>(options);
}

}  // namespace tidepool::conductor
