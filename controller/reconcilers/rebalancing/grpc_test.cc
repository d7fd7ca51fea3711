// The clients of conductors and workers, against real servers on loopback.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "controller/reconcilers/rebalancing/fleet_watcher.h"
#include "controller/reconcilers/rebalancing/role_client.h"
#include "dataplane/base/bounded_queue.h"
#include "dataplane/base/notification.h"
#include "tests/fakes/api_server.h"
#include "tidepool/conductor/v1/fleet.grpc.pb.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::reconcilers {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Duration kPatience = std::chrono::seconds(30);
const kube::ObjectKey kFamily{"models", "demo"};

conductor::v1::WatchFleetResponse Report(uint32_t waiting) {
  conductor::v1::WatchFleetResponse report;
  report.set_waiting_requests(waiting);
  report.mutable_ttft()->set_count(9);
  report.mutable_ttft()->set_p95_ms(123);
  auto& worker = *report.add_workers();
  worker.set_name("10.0.0.7:7000");
  worker.set_address("10.0.0.7:7000");
  worker.set_connected(true);
  worker.mutable_description()->set_name("demo-decode-0");
  worker.mutable_description()->set_incarnation(77);
  worker.mutable_description()->set_role(worker::v1::ROLE_DECODE);
  worker.mutable_description()->set_ready(true);
  worker.mutable_description()->mutable_role_state()->set_role(
      worker::v1::ROLE_DECODE);
  worker.mutable_description()->mutable_role_state()->set_target(
      worker::v1::ROLE_PREFILL);
  return report;
}

// Says how often it was asked, and goes on until the caller leaves; a mute one
// says so once only.
class Conductor final : public conductor::v1::FleetService::Service {
 public:
  grpc::Status WatchFleet(
      grpc::ServerContext* context, const conductor::v1::WatchFleetRequest*,
      grpc::ServerWriter<conductor::v1::WatchFleetResponse>* out) override {
    const uint32_t call = ++calls;
    (void)called.TryPush(uint32_t{call});
    bool is_said = false;
    while (!context->IsCancelled()) {
      if (!(is_mute && is_said) && !out->Write(Report(call))) break;
      is_said = true;
      if (ended.WaitFor(std::chrono::milliseconds(20))) break;
    }
    if (context->IsCancelled()) left.Notify();
    return grpc::Status::OK;
  }
  std::atomic<bool> is_mute = false;
  std::atomic<uint32_t> calls = 0;
  BoundedQueue<uint32_t> called{64};
  Notification ended, left;
};

class Worker final : public worker::v1::WorkerService::Service {
 public:
  grpc::Status SetRole(grpc::ServerContext*,
                       const worker::v1::SetRoleRequest* request,
                       worker::v1::SetRoleResponse*) override {
    worker::v1::SetRoleRequest copy = *request;
    return asked.TryPush(copy) ? grpc::Status::OK
                               : grpc::Status(grpc::RESOURCE_EXHAUSTED, "");
  }
  BoundedQueue<worker::v1::SetRoleRequest> asked{8};
};

class GrpcTest : public ::testing::Test {
 protected:
  GrpcTest() {
    keyring_.UsePlainText(kFamily);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&conductor_);
    builder.RegisterService(&worker_);
    server_ = builder.BuildAndStart();
  }
  ~GrpcTest() override {
    conductor_.ended.Notify();
    server_->Shutdown();
  }

  std::unique_ptr<FleetWatcher> Watch(FleetWatcherOptions options = {}) {
    options.port = static_cast<uint16_t>(port_);
    options.retry_min = std::chrono::milliseconds(50);
    return std::make_unique<FleetWatcher>(
        options, keyring_, Clock::Monotonic(),
        [this](const kube::ObjectKey& family) {
          kube::ObjectKey copy = family;
          (void)heard_.TryPush(copy);
        });
  }
  bool WaitForWord() { return heard_.Pop(kPatience).has_value(); }
  bool WaitForCall(uint32_t number) {
    while (const auto call = conductor_.called.Pop(kPatience))
      if (*call == number) return true;
    return false;
  }
  RoleRequest Request(uint64_t sequence) const {
    return {.family = kFamily,
            .worker = "demo-decode-0",
            .address = "127.0.0.1:" + std::to_string(port_),
            .incarnation = 77,
            .role = WorkerRole::kPrefill,
            .term = 3,
            .sequence = sequence,
            .drain_timeout = std::chrono::seconds(120)};
  }

  fakes::ApiServer api_;
  Keyring keyring_{api_, Clock::Monotonic(), UnixSeconds};
  Conductor conductor_;
  Worker worker_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  BoundedQueue<kube::ObjectKey> heard_{64};
};

TEST_F(GrpcTest, ReportsBecomeSnapshots) {
  const auto watcher = Watch();
  watcher->Follow(kFamily, {{.uid = "c", .host = "127.0.0.1"}}, true);
  ASSERT_TRUE(WaitForWord());
  const FleetSnapshot snapshot = watcher->Snapshot(kFamily);
  ASSERT_THAT(snapshot, SizeIs(1));
  EXPECT_EQ(snapshot[0].ttft.At(95), 123);
  ASSERT_THAT(snapshot[0].workers, SizeIs(1));
  const WorkerSeen& worker = snapshot[0].workers[0];
  EXPECT_EQ(worker.name, "demo-decode-0");
  EXPECT_EQ(worker.host, "10.0.0.7");
  EXPECT_EQ(worker.incarnation, 77u);
  EXPECT_EQ(worker.role, WorkerRole::kDecode);
  EXPECT_EQ(worker.target, WorkerRole::kPrefill);
}

TEST_F(GrpcTest, WhoIsFollowedNoMoreIsForgotten) {
  const auto watcher = Watch();
  watcher->Follow(kFamily, {{.uid = "c", .host = "127.0.0.1"}}, true);
  ASSERT_TRUE(WaitForWord());
  watcher->Follow(kFamily, {}, true);
  EXPECT_THAT(watcher->Snapshot(kFamily), IsEmpty());
}

TEST_F(GrpcTest, WhoLeadsNoMoreFollowsNobody) {
  const auto watcher = Watch();
  watcher->Follow(kFamily, {{.uid = "c", .host = "127.0.0.1"}}, true);
  ASSERT_TRUE(WaitForWord());
  watcher->FollowNobody();
  EXPECT_THAT(watcher->Snapshot(kFamily), IsEmpty());
  EXPECT_TRUE(conductor_.left.WaitFor(kPatience));
}

TEST_F(GrpcTest, ASampleIsOneReport) {
  const auto watcher = Watch();
  watcher->Follow(kFamily, {{.uid = "c", .host = "127.0.0.1"}}, false);
  ASSERT_TRUE(WaitForWord());
  EXPECT_THAT(watcher->Snapshot(kFamily), SizeIs(1));
  EXPECT_EQ(conductor_.calls, 1u);
}

TEST_F(GrpcTest, AConductorThatIsAwayHoldsUpNobody) {
  const auto watcher = Watch();
  watcher->Follow(
      kFamily,
      {{.uid = "away", .host = "127.9.9.9"}, {.uid = "c", .host = "127.0.0.1"}},
      true);
  ASSERT_TRUE(WaitForWord());
  EXPECT_THAT(watcher->Snapshot(kFamily), SizeIs(1));
}

TEST_F(GrpcTest, WhoFallsSilentIsCalledAgain) {
  conductor_.is_mute = true;
  const auto watcher = Watch({.silence_max = std::chrono::milliseconds(300)});
  watcher->Follow(kFamily, {{.uid = "c", .host = "127.0.0.1"}}, true);
  ASSERT_TRUE(WaitForWord());
  const TimePoint first = watcher->Snapshot(kFamily).at(0).at;
  ASSERT_TRUE(WaitForCall(2));
  // What it said counts for as long as it is young enough.
  EXPECT_GE(watcher->Snapshot(kFamily).at(0).at, first);
}

TEST_F(GrpcTest, WhoIsToBeFollowedCloselyNeedNotWaitForItsSample) {
  const auto watcher = Watch({.sample_interval = std::chrono::hours(1)});
  const std::vector<ConductorAddress> conductors = {
      {.uid = "c", .host = "127.0.0.1"}};
  watcher->Follow(kFamily, conductors, false);
  ASSERT_TRUE(WaitForWord());
  watcher->Follow(kFamily, conductors, true);
  EXPECT_TRUE(WaitForCall(2));
}

TEST_F(GrpcTest, NobodyIsCalledWithoutACertificate) {
  const kube::ObjectKey stranger{"models", "stranger"};
  const auto watcher = Watch();
  watcher->Follow(stranger, {{.uid = "s", .host = "127.0.0.1"}}, true);
  watcher->Follow(kFamily, {{.uid = "c", .host = "127.0.0.1"}}, true);
  ASSERT_TRUE(WaitForWord());
  EXPECT_THAT(watcher->Snapshot(stranger), IsEmpty());
  EXPECT_EQ(conductor_.calls, 1u);
  RoleClient roles(keyring_);
  RoleRequest request = Request(1);
  request.family = stranger;
  roles.SetRole(request);
  roles.SetRole(Request(2));
  const auto asked = worker_.asked.Pop(kPatience);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->epoch().sequence(), 2u);
}

// The process's last channel with callbacks joins gRPC's own threads, on which
// it must not end therefore.
TEST_F(GrpcTest, EndsWhileReportsAndAnswersCome) {
  for (int round = 0; round < 6; ++round) {
    const auto watcher = Watch();
    RoleClient roles(keyring_);
    watcher->Follow(kFamily, {{.uid = "c", .host = "127.0.0.1"}}, true);
    roles.SetRole(Request(1));
    ASSERT_TRUE(WaitForWord());
    // All kinds of ends: followed no more, and with the watcher.
    if (round % 2 == 0) watcher->Follow(kFamily, {}, false);
    (void)worker_.asked.Pop(Duration(0));
  }
}

TEST_F(GrpcTest, RolesAreAskedForWithTheirEpoch) {
  RoleClient roles(keyring_);
  roles.SetRole(Request(9));
  const auto asked = worker_.asked.Pop(kPatience);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->role(), worker::v1::ROLE_PREFILL);
  EXPECT_EQ(asked->epoch().term(), 3u);
  EXPECT_EQ(asked->epoch().sequence(), 9u);
  EXPECT_EQ(asked->incarnation(), 77u);
  EXPECT_EQ(asked->drain_timeout_ms(), 120'000u);
}

TEST_F(GrpcTest, AWorkerThatIsAwayKeepsNobodyWaiting) {
  RoleClient roles(keyring_, {.deadline = std::chrono::minutes(10)});
  roles.SetRole({.family = kFamily, .worker = "w", .address = "127.9.9.9:1"});
  // The destructor cancels what runs.
}

TEST_F(GrpcTest, RequestsBeyondTheBoundAreDropped) {
  RoleClient roles(keyring_, {.calls_max = 0});
  roles.SetRole(Request(1));
  RoleClient others(keyring_);
  others.SetRole(Request(2));
  const auto asked = worker_.asked.Pop(kPatience);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->epoch().sequence(), 2u);
}

}  // namespace
}  // namespace tidepool::reconcilers
