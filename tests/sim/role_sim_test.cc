// Roles that change under load, by seed. TIDEPOOL_SIM_SEED=n replays one;
// TIDEPOOL_SIM_SEEDS=n sets how many are run, TIDEPOOL_SIM_FIRST where they
// start.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/sim/scenario.h"

namespace tidepool::sim {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

TEST(RoleSimTest, NoRequestFailsInAThousandFlipsUnderLoad) {
  const char* replay = std::getenv("TIDEPOOL_SIM_SEED");
  const uint64_t first = replay != nullptr
                             ? FromEnvironment("TIDEPOOL_SIM_SEED", 0)
                             : FromEnvironment("TIDEPOOL_SIM_FIRST", 1);
  const uint64_t seeds =
      replay != nullptr ? 1 : FromEnvironment("TIDEPOOL_SIM_SEEDS", 40);
  ScenarioResult total;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const ScenarioResult result = Scenario(seed, ScenarioKind::kFlips).Run();
    EXPECT_EQ(result.error, "") << "replay with TIDEPOOL_SIM_SEED=" << seed
                                << ": " << result.description;
    EXPECT_TRUE(result.failed.empty());
    total.requests += result.requests;
    total.finished += result.finished;
    total.migrated += result.migrated;
    total.cancelled += result.cancelled;
    total.flips += result.flips;
    total.handed_back += result.handed_back;
    total.retries += result.retries;
    total.handed_over += result.handed_over;
  }
  std::cout << fmt::format(
      "{} seeds: {} flips; {} requests: {} finished, {} of them in more than "
      "one attempt, {} cancelled; {} handed back, {} attempts failed, {} "
      "handovers\n",
      seeds, total.flips, total.requests, total.finished, total.migrated,
      total.cancelled, total.handed_back, total.retries, total.handed_over);
  EXPECT_EQ(total.finished + total.cancelled, total.requests);
  if (replay != nullptr) return;
  EXPECT_GT(total.flips, 25 * seeds);
  EXPECT_GT(total.handed_back, seeds);
  EXPECT_GT(total.handed_over, seeds);
}

}  // namespace
}  // namespace tidepool::sim
