#include "dataplane/conductor/worker_stream.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "dataplane/base/log.h"
#include "dataplane/base/mutex.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::conductor {
namespace {

using worker::v1::SessionRequest;
using worker::v1::SessionResponse;

constexpr absl::Duration kFarewellMax = absl::Seconds(5);
constexpr std::chrono::seconds kDescribeMax(2);

class GrpcStream;

// Streams that gRPC is done with. They and their channels end on the threads
// that use the dialer: a channel that ends on one of gRPC's own threads, while
// the process exits, trips gRPC's shutdown. Thread-safe.
class Graveyard {
 public:
  void Opened() {
    const MutexLock lock(&mutex_);
    ++open_;
  }
  void Done(std::shared_ptr<GrpcStream> stream) {
    const MutexLock lock(&mutex_);
    --open_;
    done_.push_back(std::move(stream));
  }
  std::vector<std::shared_ptr<GrpcStream>> Clear() {
    const MutexLock lock(&mutex_);
    return std::exchange(done_, {});
  }
  // False if streams are still open after `timeout`.
  bool WaitUntilAllDone(absl::Duration timeout) {
    const MutexLock lock(&mutex_);
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return open_ == 0;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&none), timeout);
  }

 private:
  Mutex mutex_;
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<GrpcStream>> done_ ABSL_GUARDED_BY(mutex_);
};

// Calls to Start… come from any thread, so a hold keeps the call open until
// nothing more is to be started.
class GrpcStream
    : public WorkerStream,
      public grpc::ClientBidiReactor<SessionRequest, SessionResponse> {
 public:
  GrpcStream(const std::shared_ptr<grpc::Channel>& channel,
             size_t send_queue_max, std::shared_ptr<Graveyard> graveyard,
             Events events)
      : stub_(worker::v1::WorkerService::NewStub(channel)),
        send_queue_max_(send_queue_max),
        graveyard_(std::move(graveyard)),
        events_(std::move(events)) {}

  // Keeps itself alive until OnDone.
  void Open(std::shared_ptr<GrpcStream> self) {
    graveyard_->Opened();
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
    describe_context_.TryCancel();
    if (open_) End();
  }

  void OnReadDone(bool ok) override {
    {
      const MutexLock lock(&mutex_);
      // The status is on its way, and is not to be overtaken by a cancellation.
      if (!ok && open_) Release();
      if (!ok || closed_) return;
      heard_ = true;
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
    {
      const MutexLock lock(&mutex_);
      if (end_status_.ok())
        end_status_ = status.ok()
                          ? Unavailable("the worker ended the session")
                          : MakeError(static_cast<Code>(status.error_code()),
                                      "{}", status.error_message());
      const bool refused =
          status.error_code() == grpc::StatusCode::UNAVAILABLE && !heard_;
      if (refused && !closed_) return AskWhy();
    }
    Report(nullptr);
  }

 private:
  // Nothing is started after this; OnDone follows.
  void Release() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    open_ = false;
    RemoveHold();
  }
  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    context_.TryCancel();
    Release();
  }

  // Once for a stream, so the backoff of who dials bounds these calls too.
  void AskWhy() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    describe_context_.set_deadline(std::chrono::system_clock::now() +
                                   kDescribeMax);
    stub_->async()->Describe(&describe_context_, &describe_request_,
                             &description_, [this](const grpc::Status& status) {
                               Report(status.ok() ? &description_ : nullptr);
                             });
  }

  // The last thing a stream does.
  void Report(worker::v1::DescribeResponse* description) {
    std::shared_ptr<GrpcStream> self;
    bool wanted = false;
    Status reason;
    {
      const MutexLock lock(&mutex_);
      self = std::move(self_);
      wanted = !closed_;
      reason = end_status_;
    }
    if (wanted && description != nullptr)
      events_.described(std::move(*description));
    if (wanted) events_.disconnected(reason);
    // Nothing of this object is touched after it was handed over.
    const std::shared_ptr<Graveyard> graveyard = graveyard_;
    graveyard->Done(std::move(self));
  }

  const std::unique_ptr<worker::v1::WorkerService::Stub> stub_;
  const size_t send_queue_max_;
  const std::shared_ptr<Graveyard> graveyard_;
  const Events events_;
  grpc::ClientContext context_;
  SessionResponse response_;  // owned by the read under way
  grpc::ClientContext describe_context_;
  const worker::v1::DescribeRequest describe_request_;
  worker::v1::DescribeResponse description_;

  Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool heard_ ABSL_GUARDED_BY(mutex_) = false;
  Status end_status_ ABSL_GUARDED_BY(mutex_);
  // The front is being written. A deque, for its elements do not move.
  std::deque<SessionRequest> queue_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<GrpcStream> self_ ABSL_GUARDED_BY(mutex_);
};

class GrpcDialer : public WorkerDialer {
 public:
  explicit GrpcDialer(const GrpcDialerOptions& options) : options_(options) {}

  // Streams must be closed. Waits for gRPC to be done with them.
  ~GrpcDialer() override {
    if (!graveyard_->WaitUntilAllDone(kFarewellMax))
      LOG_WARNING("streams to workers did not end in time");
    graveyard_->Clear();
  }

  std::shared_ptr<WorkerStream> Dial(const std::string& address,
                                     WorkerStream::Events events) override {
    graveyard_->Clear();
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(options_.message_bytes_max);
    arguments.SetMaxSendMessageSize(options_.message_bytes_max);
    // A channel of its own for each stream: when to try again is decided by
    // the core's backoff alone, not by that of an earlier channel.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const std::shared_ptr<grpc::Channel> channel =
        options_.security.OpenChannel(address, rpc::Component::kWorker,
                                      arguments);
    auto stream = std::make_shared<GrpcStream>(channel, options_.send_queue_max,
                                               graveyard_, std::move(events));
    stream->Open(stream);
    return stream;
  }

 private:
  const GrpcDialerOptions options_;
  const std::shared_ptr<Graveyard> graveyard_ = std::make_shared<Graveyard>();
};

}  // namespace

std::unique_ptr<WorkerDialer> MakeGrpcDialer(const GrpcDialerOptions& options) {
  return std::make_unique<GrpcDialer>(options);
}

}  // namespace tidepool::conductor
