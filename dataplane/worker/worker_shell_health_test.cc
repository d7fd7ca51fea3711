#include "dataplane/worker/worker_shell_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidepool::worker {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr TimePoint kNow{seconds(10000)};

TEST(HealthTest, AWorkerThatLoadsOrWaitsIsHealthy) {
  EXPECT_EQ(HealthAnswer(std::nullopt, seconds(600), kNow).status, 200);
  const WorkerSnapshot idle{.turned_at = kNow - seconds(1)};
  EXPECT_EQ(HealthAnswer(idle, seconds(600), kNow).status, 200);
}

TEST(HealthTest, AStepIsGivenItsTimeAndNoMore) {
  WorkerSnapshot busy{.turned_at = kNow, .step_since = kNow - seconds(599)};
  EXPECT_EQ(HealthAnswer(busy, seconds(600), kNow).status, 200);
  busy.step_since = kNow - seconds(601);
  const HttpAnswer stuck = HealthAnswer(busy, seconds(600), kNow);
  EXPECT_EQ(stuck.status, 503);
  EXPECT_THAT(stuck.body, HasSubstr("601 s"));
}

TEST(HealthTest, ACoreThatDoesNothingIsNot) {
  const WorkerSnapshot stuck{.turned_at = kNow - seconds(31)};
  EXPECT_EQ(HealthAnswer(stuck, seconds(600), kNow).status, 503);
}

TEST(ReadyTest, FollowsTheLoadAndStaysDuringASwitchOfRoles) {
  wire::DescribeResponse description;
  description.set_role(wire::ROLE_DECODE);
  description.set_load_progress(0.25f);
  const HttpAnswer loading = ReadyAnswer(description);
  EXPECT_EQ(loading.status, 503);
  EXPECT_THAT(loading.body, HasSubstr("0.250"));
  description.set_ready(true);
  EXPECT_EQ(ReadyAnswer(description).status, 200);
  description.mutable_role_state()->set_target(wire::ROLE_PREFILL);
  const HttpAnswer switching = ReadyAnswer(description);
  EXPECT_EQ(switching.status, 200);
  EXPECT_THAT(switching.body, HasSubstr("\"target\":\"prefill\""));
  description.set_draining(true);
  EXPECT_THAT(ReadyAnswer(description).body, HasSubstr("draining"));
}

}  // namespace
}  // namespace tidepool::worker
