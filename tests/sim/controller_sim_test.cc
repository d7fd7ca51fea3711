// Controllers that rebalance a fleet through faults, by seed.
// TIDEPOOL_SIM_SEED=n replays one; TIDEPOOL_SIM_SEEDS=n sets how many are run,
// TIDEPOOL_SIM_FIRST where they start, TIDEPOOL_SIM_MOVES=n how many moves they
// must begin.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "dataplane/base/log.h"
#include "tests/sim/controller_scenario.h"

namespace tidepool::sim {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

class ControllerSimTest : public ::testing::Test {
 protected:
  // Every fault is warned of.
  static void SetUpTestSuite() {
    const char* level = std::getenv("TIDEPOOL_SIM_LOG");
    ASSERT_TRUE(
        InitLogging({.level = level != nullptr ? level : "error"}).ok());
  }
};

TEST_F(ControllerSimTest, RebalancesStayWithinTheBudgetAndConverge) {
  const char* replay = std::getenv("TIDEPOOL_SIM_SEED");
  const uint64_t first = replay != nullptr
                             ? FromEnvironment("TIDEPOOL_SIM_SEED", 0)
                             : FromEnvironment("TIDEPOOL_SIM_FIRST", 1);
  const uint64_t seeds =
      replay != nullptr ? 1 : FromEnvironment("TIDEPOOL_SIM_SEEDS", 5);
  ControllerResult total;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const ControllerResult result = ControllerScenario(seed).Run();
    EXPECT_EQ(result.error, "") << "replay with TIDEPOOL_SIM_SEED=" << seed
                                << ": " << result.description;
    total.flips += result.flips;
    total.scales += result.scales;
    total.flipped += result.flipped;
    total.terms += result.terms;
    total.deaths += result.deaths;
    total.freezes += result.freezes;
    total.faults += result.faults;
    total.wishes += result.wishes;
    total.writes += result.writes;
    total.converged_seconds =
        std::max(total.converged_seconds, result.converged_seconds);
  }
  std::cout << fmt::format(
      "{} seeds: {} moves begun ({} flips, {} changes of replicas), {} "
      "switches ended; {} terms, {} controllers died, {} froze; {} faults, {} "
      "wishes; {} writes; converged after at most {:.0f} s\n",
      seeds, total.moves(), total.flips, total.scales, total.flipped,
      total.terms, total.deaths, total.freezes, total.faults, total.wishes,
      total.writes, total.converged_seconds);
  if (replay != nullptr) return;
  // The schedules are worth something only if they reach what they are for.
  EXPECT_GE(total.moves(), FromEnvironment("TIDEPOOL_SIM_MOVES", 0));
  EXPECT_GT(total.flips, 10 * seeds);
  EXPECT_GT(total.scales, 10 * seeds);
  EXPECT_GT(total.deaths, seeds);
  EXPECT_GT(total.freezes, seeds);
}

TEST_F(ControllerSimTest, TheSameSeedGivesTheSameRun) {
  const ControllerResult first = ControllerScenario(3).Run();
  const ControllerResult second = ControllerScenario(3).Run();
  EXPECT_EQ(first.description, second.description);
  EXPECT_EQ(first.writes, second.writes);
  EXPECT_EQ(first.moves(), second.moves());
  EXPECT_EQ(first.converged_seconds, second.converged_seconds);
}

}  // namespace
}  // namespace tidepool::sim
