// Who may call what, over real connections.
#include "dataplane/worker/grpc_service.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "dataplane/rpc/certificate_test_util.h"

namespace tidepool::worker {
namespace {

using grpc::StatusCode;
using rpc::Component;

class GrpcServiceTest : public testing::Test {
 protected:
  GrpcServiceTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(
        "127.0.0.1:0",
        security_.ServerCredentials({Component::kConductor, Component::kWorker,
                                     Component::kController}),
        &port);
    builder.RegisterService(&worker_service_);
    builder.RegisterService(&peer_service_);
    server_ = builder.BuildAndStart();
    address_ = fmt::format("127.0.0.1:{}", port);
  }
  ~GrpcServiceTest() override {
    sessions_.EndAll(Unavailable("the test is over"));
    server_->Shutdown();
  }

  rpc::Security Member(Component component) const {
    auto security =
        rpc::Security::Of(rpc::TestMaterial(ca_, rpc::TestRole(component)));
    EXPECT_TRUE(security.ok()) << security.status();
    return *std::move(security);
  }
  std::shared_ptr<grpc::Channel> Dial(Component as) const {
    return Member(as).OpenChannel(address_, Component::kWorker, {});
  }

  StatusCode SetRole(Component as) const {
    grpc::ClientContext context;
    wire::SetRoleResponse response;
    return wire::WorkerService::NewStub(Dial(as))
        ->SetRole(&context, {}, &response)
        .error_code();
  }
  StatusCode Abort(Component as) const {
    grpc::ClientContext context;
    wire::AbortResponse response;
    return wire::PeerService::NewStub(Dial(as))
        ->Abort(&context, {}, &response)
        .error_code();
  }
  StatusCode Session(Component as) const {
    grpc::ClientContext context;
    const auto stub = wire::WorkerService::NewStub(Dial(as));
    const auto stream = stub->Session(&context);
    stream->Write({});
    return stream->Finish().error_code();
  }

  const rpc::KeyPair ca_ = rpc::TestCa();
  const rpc::Security security_ = Member(Component::kWorker);
  // Sessions end with their first message.
  SessionRegistry sessions_{
      {.on_message = [](uint64_t,
                        const wire::SessionRequest&) { return false; },
       .on_closed = [](uint64_t) {}},
      8,
      8};
  WorkerService worker_service_{
      security_, sessions_,
      [] {
        wire::DescribeResponse description;
        description.set_ready(true);
        return description;
      },
      [](const wire::SetRoleRequest&, const WorkerService::RoleReply& reply) {
        reply(wire::RoleState());
      }};
  PeerService peer_service_{
      security_, [](IncomingCallId, const PeerRequest&) { return false; }, 8};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(GrpcServiceTest, RolesAreSetByControllers) {
  EXPECT_EQ(SetRole(Component::kController), StatusCode::OK);
  EXPECT_EQ(SetRole(Component::kConductor), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(SetRole(Component::kWorker), StatusCode::PERMISSION_DENIED);
}

TEST_F(GrpcServiceTest, SessionsAreForConductors) {
  EXPECT_EQ(Session(Component::kConductor), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Session(Component::kController), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Session(Component::kWorker), StatusCode::PERMISSION_DENIED);
}

TEST_F(GrpcServiceTest, HandOversAreForWorkers) {
  EXPECT_EQ(Abort(Component::kWorker), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Abort(Component::kController), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Abort(Component::kConductor), StatusCode::PERMISSION_DENIED);
}

}  // namespace
}  // namespace tidepool::worker
