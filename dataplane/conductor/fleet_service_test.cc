#include "dataplane/conductor/fleet_service.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>

#include "dataplane/rpc/certificate_test_util.h"
#include "tidepool/conductor/v1/fleet.grpc.pb.h"

namespace tidepool::conductor {
namespace {

class ControlServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server =
        ControlServer::Start({.watchers_max = 2}, Clock::Monotonic(), [this] {
          v1::WatchFleetResponse report;
          report.set_conductor_id("c");
          report.set_waiting_requests(++reports_);
          return report;
        });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::FleetService::NewStub(
        grpc::CreateChannel(fmt::format("127.0.0.1:{}", server_->port()),
                            grpc::InsecureChannelCredentials()));
  }

  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchFleetResponse>> reader;
    bool Read(v1::WatchFleetResponse& report) { return reader->Read(&report); }
  };
  std::unique_ptr<Watch> Open(uint32_t interval_ms) {
    auto watch = std::make_unique<Watch>();
    v1::WatchFleetRequest request;
    request.set_interval_ms(interval_ms);
    watch->reader = stub_->WatchFleet(&watch->context, request);
    return watch;
  }

  std::atomic<uint32_t> reports_ = 0;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<v1::FleetService::Stub> stub_;
};

TEST_F(ControlServerTest, ReportsAtOnceAndThenEveryInterval) {
  const auto watch = Open(100);
  v1::WatchFleetResponse report;
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    ASSERT_TRUE(watch->Read(report));
    EXPECT_EQ(report.sequence(), sequence);
    EXPECT_EQ(report.conductor_id(), "c");
  }
}

TEST_F(ControlServerTest, EachWatcherHasItsOwnSequence) {
  const auto first = Open(100);
  v1::WatchFleetResponse report;
  ASSERT_TRUE(first->Read(report));
  ASSERT_TRUE(first->Read(report));
  const auto second = Open(60'000);
  ASSERT_TRUE(second->Read(report));
  EXPECT_EQ(report.sequence(), 1u);
}

TEST_F(ControlServerTest, RefusesIntervalsOutOfRange) {
  for (const uint32_t interval : {0u, 99u, 60'001u}) {
    const auto watch = Open(interval);
    v1::WatchFleetResponse report;
    EXPECT_FALSE(watch->Read(report));
    EXPECT_EQ(watch->reader->Finish().error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(ControlServerTest, TakesNoMoreWatchersThanItsLimit) {
  const auto first = Open(100);
  const auto second = Open(100);
  v1::WatchFleetResponse report;
  ASSERT_TRUE(first->Read(report));
  ASSERT_TRUE(second->Read(report));
  const auto third = Open(100);
  EXPECT_FALSE(third->Read(report));
  EXPECT_EQ(third->reader->Finish().error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ControlServerTest, ItsEndEndsTheStreams) {
  const auto watch = Open(60'000);
  v1::WatchFleetResponse report;
  ASSERT_TRUE(watch->Read(report));
  server_.reset();
  EXPECT_FALSE(watch->Read(report));
  EXPECT_EQ(watch->reader->Finish().error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ControlServerTest, APortInUseIsSaid) {
  const auto other =
      ControlServer::Start({.port = server_->port()}, Clock::Monotonic(),
                           [] { return v1::WatchFleetResponse(); });
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().code(), Code::kAlreadyExists);
}

TEST(ControlServerTlsTest, ControllersAloneMayWatch) {
  using rpc::Component;
  const rpc::KeyPair ca = rpc::TestCa();
  const auto member = [&](Component component) {
    return *rpc::Security::Of(rpc::TestMaterial(ca, rpc::TestRole(component)));
  };
  const auto server = ControlServer::Start(
      {.security = member(Component::kConductor)}, Clock::Monotonic(),
      [] { return v1::WatchFleetResponse(); });
  ASSERT_TRUE(server.ok()) << server.status();
  const auto gets_a_report = [&](const rpc::Security& security) {
    const auto stub = v1::FleetService::NewStub(
        security.OpenChannel(fmt::format("127.0.0.1:{}", (*server)->port()),
                             Component::kConductor, {}));
    grpc::ClientContext context;
    v1::WatchFleetRequest request;
    request.set_interval_ms(60'000);
    v1::WatchFleetResponse report;
    const auto reader = stub->WatchFleet(&context, request);
    const bool spoke = reader->Read(&report);
    context.TryCancel();
    reader->Finish();
    return spoke;
  };
  EXPECT_TRUE(gets_a_report(member(Component::kController)));
  EXPECT_FALSE(gets_a_report(member(Component::kWorker)));
  EXPECT_FALSE(gets_a_report(member(Component::kConductor)));
  EXPECT_FALSE(gets_a_report(rpc::Security()));
}

}  // namespace
}  // namespace tidepool::conductor
