#include "dataplane/worker/grpc_session.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "dataplane/base/notification.h"
#include "dataplane/worker/grpc_service.h"

namespace tidepool::worker {
namespace {

class SessionRegistryTest : public testing::Test {
 protected:
  static constexpr size_t kMaxSessions = 2, kMaxQueued = 4;

  SessionRegistryTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = wire::WorkerService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                            grpc::InsecureChannelCredentials()));
  }

  auto Open(grpc::ClientContext& context) {
    auto stream = stub_->Session(&context);
    stream->Write(wire::SessionRequest());
    return stream;
  }

  static wire::SessionResponse Large() {
    wire::SessionResponse message;
    message.mutable_failure()->set_message(std::string(1 << 20, 'x'));
    return message;
  }

  bool accept_ = true;
  Notification opened_, closed_;
  Notification first_read_[kMaxSessions];
  SessionRegistry sessions_{
      {.on_message =
           [this](uint64_t session, wire::SessionRequest) {
             EXPECT_EQ(session, 1u);
             if (!opened_.happened()) opened_.Notify();
             return accept_;
           },
       .on_closed =
           [this](uint64_t session) {
             if (session == 1) closed_.Notify();
           }},
      kMaxSessions,
      kMaxQueued};
  const rpc::Security plain_;
  WorkerService service_{
      plain_, sessions_,
      [] {
        wire::DescribeResponse description;
        description.set_ready(true);
        return description;
      },
      [](const wire::SetRoleRequest& request, WorkerService::RoleReply reply) {
        if (request.role() != wire::ROLE_PREFILL)
          return reply(FailedPrecondition("only prefill"));
        wire::RoleState state;
        state.set_role(request.role());
        reply(state);
      }};
  std::unique_ptr<wire::WorkerService::Stub> stub_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(SessionRegistryTest, PassesRolesOnAndTheirRefusals) {
  wire::SetRoleRequest request;
  request.set_role(wire::ROLE_PREFILL);
  wire::SetRoleResponse response;
  grpc::ClientContext taken;
  ASSERT_TRUE(stub_->SetRole(&taken, request, &response).ok());
  EXPECT_EQ(response.state().role(), wire::ROLE_PREFILL);
  request.set_role(wire::ROLE_DECODE);
  grpc::ClientContext refused;
  const grpc::Status status = stub_->SetRole(&refused, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "set role: only prefill");
}

TEST_F(SessionRegistryTest, SendsInOrderWhatIsQueuedBeforeItEnds) {
  grpc::ClientContext context;
  const auto stream = Open(context);
  opened_.Wait();
  for (uint64_t i = 1; i <= kMaxQueued; ++i) {
    wire::SessionResponse message;
    message.set_sequence(i);
    sessions_.Send(1, std::move(message));
  }
  sessions_.End(1, Unavailable("going away"));
  sessions_.Send(1, wire::SessionResponse());  // too late
  wire::SessionResponse message;
  uint64_t received = 0;
  while (stream->Read(&message)) EXPECT_EQ(message.sequence(), ++received);
  EXPECT_EQ(received, kMaxQueued);
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "going away");
  closed_.Wait();
}

TEST_F(SessionRegistryTest, AConductorThatDoesNotReadLosesItsSession) {
  grpc::ClientContext context;
  const auto stream = Open(context);
  opened_.Wait();
  // More than all windows and buffers between us hold.
  for (int i = 0; i < 1000 && !closed_.happened(); ++i)
    sessions_.Send(1, Large());
  closed_.Wait();
}

TEST_F(SessionRegistryTest, AMessageThatCannotBeTakenEndsTheSession) {
  accept_ = false;
  grpc::ClientContext context;
  const auto stream = Open(context);
  wire::SessionResponse message;
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_EQ(stream->Finish().error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  closed_.Wait();
}

TEST_F(SessionRegistryTest, AConductorThatLeavesClosesItsSession) {
  {
    grpc::ClientContext context;
    const auto stream = Open(context);
    opened_.Wait();
    context.TryCancel();
    stream->Finish();
  }
  closed_.Wait();
  sessions_.Send(1, wire::SessionResponse());  // nobody is there
}

TEST_F(SessionRegistryTest, RefusesSessionsAboveTheBound) {
  grpc::ClientContext contexts[kMaxSessions], refused_context;
  std::unique_ptr<
      grpc::ClientReaderWriter<wire::SessionRequest, wire::SessionResponse>>
      streams[kMaxSessions];
  wire::SessionResponse message;
  for (uint64_t i = 0; i < kMaxSessions; ++i) {
    streams[i] = stub_->Session(&contexts[i]);
    // Until the session is there, what is sent to it goes nowhere.
    std::thread sender([&] {
      do {
        sessions_.Send(i + 1, wire::SessionResponse());
      } while (!first_read_[i].WaitFor(std::chrono::milliseconds(5)));
    });
    EXPECT_TRUE(streams[i]->Read(&message));
    first_read_[i].Notify();
    sender.join();
  }
  const auto refused = stub_->Session(&refused_context);
  EXPECT_FALSE(refused->Read(&message));
  EXPECT_EQ(refused->Finish().error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (grpc::ClientContext& context : contexts) context.TryCancel();
}

}  // namespace
}  // namespace tidepool::worker
