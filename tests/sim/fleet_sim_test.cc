// Runs seeded scenarios. TIDEPOOL_SIM_SEED=n replays one; TIDEPOOL_SIM_SEEDS=n
// sets how many are run, TIDEPOOL_SIM_FIRST where they start.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "tests/sim/scenario.h"

namespace tidepool::sim {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

TEST(FleetSimTest, EveryRequestEndsOnceWithTheRightTokensAndNothingLeaks) {
  const char* replay = std::getenv("TIDEPOOL_SIM_SEED");
  const uint64_t first = replay != nullptr
                             ? FromEnvironment("TIDEPOOL_SIM_SEED", 0)
                             : FromEnvironment("TIDEPOOL_SIM_FIRST", 1);
  const uint64_t seeds =
      replay != nullptr ? 1 : FromEnvironment("TIDEPOOL_SIM_SEEDS", 1000);
  ScenarioResult total;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const ScenarioResult result = Scenario(seed).Run();
    EXPECT_EQ(result.error, "") << "replay with TIDEPOOL_SIM_SEED=" << seed
                                << ": " << result.description;
    total.events += result.events;
    total.requests += result.requests;
    total.finished += result.finished;
    total.cancelled += result.cancelled;
    total.abandoned += result.abandoned;
    total.migrated += result.migrated;
    total.handed_over += result.handed_over;
    total.preemptions += result.preemptions;
    total.prefix_hit_tokens += result.prefix_hit_tokens;
    for (const auto& [reason, count] : result.failed) {
      total.failed[reason] += count;
    }
  }
  uint32_t failed = 0;
  std::string reasons;
  for (const auto& [reason, count] : total.failed) {
    failed += count;
    reasons += fmt::format(" {} {}", count, reason);
  }
  std::cout << fmt::format(
      "{} seeds, {} events; {} requests: {} finished ({} after a migration), "
      "{} cancelled, {} lost with their conductor, {} failed:{}; {} handovers, "
      "{} preemptions, {} tokens from the cache\n",
      seeds, total.events, total.requests, total.finished, total.migrated,
      total.cancelled, total.abandoned, failed, reasons, total.handed_over,
      total.preemptions, total.prefix_hit_tokens);
  if (replay != nullptr) return;
  // The scenarios are worth something only if they reach what they are for,
  // and faults that pass are to be survived.
  EXPECT_GT(total.migrated, seeds / 10);
  EXPECT_GT(total.preemptions, seeds / 10);
  EXPECT_GT(total.handed_over, seeds);
  EXPECT_GT(total.prefix_hit_tokens, seeds);
  EXPECT_LT(failed, total.requests / 10);
}

TEST(FleetSimTest, TheSameSeedGivesTheSameRun) {
  for (const uint64_t seed : {3, 7, 11}) {
    const ScenarioResult first = Scenario(seed).Run();
    const ScenarioResult second = Scenario(seed).Run();
    EXPECT_EQ(first.description, second.description);
    EXPECT_EQ(first.events, second.events);
    EXPECT_EQ(first.finished, second.finished);
    EXPECT_EQ(first.prefix_hit_tokens, second.prefix_hit_tokens);
  }
}

}  // namespace
}  // namespace tidepool::sim
