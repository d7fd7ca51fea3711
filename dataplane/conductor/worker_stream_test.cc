#include "dataplane/conductor/worker_stream.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <utility>

#include "dataplane/base/bounded_queue.h"
#include "dataplane/conductor/http_test_client.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::conductor {
namespace {

using worker::v1::SessionRequest;
using worker::v1::SessionResponse;

constexpr auto kPatience = RawClient::kPatience;

// Answers each message with its own sequence number, twice; ends the session
// at a cancel message.
class EchoService : public worker::v1::WorkerService::Service {
 public:
  grpc::Status Describe(grpc::ServerContext*,
                        const worker::v1::DescribeRequest*,
                        worker::v1::DescribeResponse* response) override {
    response->set_load_progress(0.5);
    return grpc::Status::OK;
  }
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<SessionResponse, SessionRequest>* stream)
      override {
    if (loading) return {grpc::StatusCode::UNAVAILABLE, "still loading"};
    SessionRequest request;
    while (stream->Read(&request)) {
      if (request.has_cancel())
        return {grpc::StatusCode::RESOURCE_EXHAUSTED, "enough"};
      SessionResponse response;
      response.set_sequence(request.sequence());
      stream->Write(response);
      stream->Write(response);
    }
    EXPECT_TRUE(ended.TryPush(1));
    return grpc::Status::OK;
  }
  BoundedQueue<int> ended{16};
  std::atomic<bool> loading = false;
};

class WorkerStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override { server_->Shutdown(); }

  std::shared_ptr<WorkerStream> Dial(const std::string& address) {
    return dialer_->Dial(
        address,
        {.message =
             [this](SessionResponse message) {
               EXPECT_TRUE(messages_.TryPush(std::move(message)));
             },
         .described =
             [this](worker::v1::DescribeResponse description) {
               EXPECT_TRUE(descriptions_.TryPush(std::move(description)));
             },
         .disconnected =
             [this](Status status) {
               EXPECT_TRUE(ends_.TryPush(std::move(status)));
             }});
  }
  std::shared_ptr<WorkerStream> Dial() {
    return Dial(fmt::format("127.0.0.1:{}", port_));
  }
  static SessionRequest Message(uint64_t sequence) {
    SessionRequest message;
    message.set_sequence(sequence);
    return message;
  }

  EchoService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  BoundedQueue<SessionResponse> messages_{64};
  BoundedQueue<worker::v1::DescribeResponse> descriptions_{16};
  BoundedQueue<Status> ends_{16};
  const std::unique_ptr<WorkerDialer> dialer_ =
      MakeGrpcDialer({.send_queue_max = 4});
};

TEST_F(WorkerStreamTest, DeliversOneMessageForEachCredit) {
  const auto stream = Dial();
  stream->Send(Message(1));
  stream->Send(Message(2));
  for (const uint64_t expected : {1u, 1u, 2u, 2u}) {
    const auto message = messages_.Pop(kPatience);
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->sequence(), expected);
    EXPECT_EQ(messages_.size(), 0u);  // the next one waits for its credit
    stream->ReadNext();
  }
  stream->Close("done");
  EXPECT_TRUE(service_.ended.Pop(kPatience).has_value());
  EXPECT_EQ(ends_.size(), 0u);
}

TEST_F(WorkerStreamTest, TellsTheStatusOfTheWorker) {
  const auto stream = Dial();
  SessionRequest cancel;
  cancel.mutable_cancel();
  stream->Send(cancel);
  const auto end = ends_.Pop(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), Code::kResourceExhausted);
  stream->Send(Message(1));  // nothing happens any more
  stream->ReadNext();
  stream->Close("late");
}

TEST_F(WorkerStreamTest, AsksAWorkerThatRefusesTheSession) {
  service_.loading = true;
  const auto stream = Dial();
  stream->Send(Message(1));
  const auto end = ends_.Pop(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(MessageOf(*end), "still loading");
  ASSERT_EQ(descriptions_.size(), 1u);  // told before the end
  EXPECT_EQ(descriptions_.Pop(kPatience)->load_progress(), 0.5);
}

TEST_F(WorkerStreamTest, TellsThatNobodyIsThere) {
  const auto stream = Dial("127.0.0.1:1");
  const auto end = ends_.Pop(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), Code::kUnavailable);
  EXPECT_EQ(descriptions_.size(), 0u);
}

TEST_F(WorkerStreamTest, EndsWhenItsQueueIsFull) {
  // Nobody reads from this socket's backlog: the writes stay queued.
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const UniqueFd owner(listener);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto stream =
      Dial(fmt::format("127.0.0.1:{}", ntohs(address.sin_port)));
  for (uint64_t i = 1; i <= 5; ++i) stream->Send(Message(i));
  const auto end = ends_.Pop(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace tidepool::conductor
