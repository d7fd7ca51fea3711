#include "dataplane/fleet/role_keeper.h"

#include <gtest/gtest.h>

#include <chrono>

namespace tidepool::fleet {
namespace {

using namespace std::chrono_literals;
using scheduling::WorkerRole;

namespace wire = worker::v1;

class RoleKeeperTest : public ::testing::Test {
 protected:
  RoleKeeperTest() {
    worker_.set_address("w:7000");
    worker_.set_connected(true);
    described().set_ready(true);
    described().set_incarnation(11);
    described().set_role(wire::ROLE_DECODE);
  }

  wire::DescribeResponse& described() { return *worker_.mutable_description(); }

  std::vector<RoleCall> Next(WorkerRole role) {
    const RoleWish wish{
        .id = "w", .role = role, .worker = &worker_, .drain_timeout = 1500ms};
    return keeper_.Next({&wish, 1}, now_);
  }
  // The worker has taken `call`, and the conductors know.
  void Take(const RoleCall& call) {
    *described().mutable_role_state()->mutable_epoch() = call.request.epoch();
    described().mutable_role_state()->set_target(call.request.role());
    keeper_.OnAnswer("w", OkStatus(), now_);
  }

  WorkerReport worker_;
  RoleKeeper keeper_{7};
  TimePoint now_{1000s};
};

TEST_F(RoleKeeperTest, AsksAWorkerOfAnotherRole) {
  const std::vector<RoleCall> calls = Next(WorkerRole::kPrefill);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].id, "w");
  EXPECT_EQ(calls[0].address, "w:7000");
  EXPECT_EQ(calls[0].request.role(), wire::ROLE_PREFILL);
  EXPECT_EQ(calls[0].request.incarnation(), 11u);
  EXPECT_EQ(calls[0].request.epoch().term(), 7u);
  EXPECT_EQ(calls[0].request.epoch().sequence(), 1u);
  EXPECT_EQ(calls[0].request.drain_timeout_ms(), 1500u);
}

TEST_F(RoleKeeperTest, LeavesAloneWhoHasTheRoleOrIsOnItsWay) {
  EXPECT_TRUE(Next(WorkerRole::kDecode).empty());
  described().mutable_role_state()->set_target(wire::ROLE_PREFILL);
  EXPECT_TRUE(Next(WorkerRole::kPrefill).empty());
}

TEST_F(RoleKeeperTest, CallsBackWhoIsOnItsWayToAnotherRole) {
  described().mutable_role_state()->set_target(wire::ROLE_PREFILL);
  const std::vector<RoleCall> calls = Next(WorkerRole::kDecode);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].request.role(), wire::ROLE_DECODE);
}

TEST_F(RoleKeeperTest, AsksOnlyWhoCanAnswer) {
  worker_.set_connected(false);
  EXPECT_TRUE(Next(WorkerRole::kPrefill).empty());
  worker_.set_connected(true);
  described().set_ready(false);
  EXPECT_TRUE(Next(WorkerRole::kPrefill).empty());
  described().set_ready(true);
  described().set_draining(true);
  EXPECT_TRUE(Next(WorkerRole::kPrefill).empty());
  worker_.clear_description();
  EXPECT_TRUE(Next(WorkerRole::kPrefill).empty());
  const RoleWish unknown{.id = "w", .role = WorkerRole::kPrefill};
  EXPECT_TRUE(keeper_.Next({&unknown, 1}, now_).empty());
}

TEST_F(RoleKeeperTest, OneCallAtATime) {
  ASSERT_EQ(Next(WorkerRole::kPrefill).size(), 1u);
  now_ += 1h;
  EXPECT_TRUE(Next(WorkerRole::kPrefill).empty());
}

TEST_F(RoleKeeperTest, PausesDoubleWhileCallsFail) {
  Duration pause = RoleKeeper::kPauseMin;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(Next(WorkerRole::kPrefill).size(), 1u) << i;
    keeper_.OnAnswer("w", Unavailable("gone"), now_);
    now_ += pause - 1ns;
    ASSERT_TRUE(Next(WorkerRole::kPrefill).empty()) << i;
    now_ += 1ns;
    pause = std::min<Duration>(2 * pause, RoleKeeper::kPauseMax);
  }
}

TEST_F(RoleKeeperTest, EveryCallHasALaterEpoch) {
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    const std::vector<RoleCall> calls = Next(WorkerRole::kPrefill);
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].request.epoch().sequence(), sequence);
    keeper_.OnAnswer("w", Unavailable("gone"), now_);
    now_ += RoleKeeper::kPauseMax;
  }
}

TEST_F(RoleKeeperTest, DoesNotRepeatItselfForAReportFromBeforeTheAnswer) {
  ASSERT_EQ(Next(WorkerRole::kPrefill).size(), 1u);
  keeper_.OnAnswer("w", OkStatus(), now_);
  now_ += RoleKeeper::kEchoPatience - 1ns;
  EXPECT_TRUE(Next(WorkerRole::kPrefill).empty());
  now_ += 1ns;
  EXPECT_EQ(Next(WorkerRole::kPrefill).size(), 1u);
}

TEST_F(RoleKeeperTest, AsksAgainWhoRestartedInItsOldRole) {
  const std::vector<RoleCall> calls = Next(WorkerRole::kPrefill);
  ASSERT_EQ(calls.size(), 1u);
  Take(calls[0]);
  EXPECT_TRUE(Next(WorkerRole::kPrefill).empty());
  described().clear_role_state();
  described().set_incarnation(12);
  const std::vector<RoleCall> again = Next(WorkerRole::kPrefill);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].request.incarnation(), 12u);
}

TEST_F(RoleKeeperTest, ARestartRightAfterTheAnswerWaitsForThePauseOnly) {
  ASSERT_EQ(Next(WorkerRole::kPrefill).size(), 1u);
  keeper_.OnAnswer("w", OkStatus(), now_);
  described().set_incarnation(12);
  EXPECT_TRUE(Next(WorkerRole::kPrefill).empty());
  now_ += RoleKeeper::kPauseMin;
  EXPECT_EQ(Next(WorkerRole::kPrefill).size(), 1u);
}

TEST_F(RoleKeeperTest, ForgetsWhoIsNotWishedFor) {
  ASSERT_EQ(Next(WorkerRole::kPrefill).size(), 1u);
  EXPECT_TRUE(keeper_.Next({}, now_).empty());
  keeper_.OnAnswer("w", OkStatus(), now_);  // too late to matter
  EXPECT_EQ(Next(WorkerRole::kPrefill).size(), 1u);
}

TEST_F(RoleKeeperTest, TimesToDrainStayWithinWhatWorkersTake) {
  const RoleWish wish{.id = "w",
                      .role = WorkerRole::kPrefill,
                      .worker = &worker_,
                      .drain_timeout = 48h};
  const std::vector<RoleCall> calls = keeper_.Next({&wish, 1}, now_);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].request.drain_timeout_ms(), 24u * 3600 * 1000);
}

}  // namespace
}  // namespace tidepool::fleet
