#include "dataplane/conductor/latency_window.h"

#include <gtest/gtest.h>

namespace tidepool::conductor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{seconds(5000)};

void ExpectNear(Duration got, Duration wanted) {
  EXPECT_NEAR(Seconds(got).count(), Seconds(wanted).count(),
              0.03 * Seconds(wanted).count());
}

TEST(LatencyWindowTest, TellsQuantilesToAFewPercent) {
  LatencyWindow window;
  for (int i = 1; i <= 1000; ++i) window.Add(milliseconds(i), 1, kStart);
  const LatencyQuantiles told = window.Quantiles(kStart);
  EXPECT_EQ(told.count, 1000u);
  ExpectNear(told.p50, milliseconds(500));
  ExpectNear(told.p90, milliseconds(900));
  ExpectNear(told.p95, milliseconds(950));
  ExpectNear(told.p99, milliseconds(990));
}

TEST(LatencyWindowTest, ForgetsWhatIsOlderThanAMinute) {
  LatencyWindow window;
  window.Add(seconds(5), 10, kStart);
  window.Add(milliseconds(10), 30, kStart + seconds(40));
  EXPECT_EQ(window.Quantiles(kStart + seconds(60)).count, 40u);
  const LatencyQuantiles later = window.Quantiles(kStart + seconds(61));
  EXPECT_EQ(later.count, 30u);
  ExpectNear(later.p99, milliseconds(10));
  EXPECT_EQ(window.Quantiles(kStart + seconds(300)).count, 0u);
  // A slot is used again.
  window.Add(milliseconds(20), 1, kStart + seconds(61 * 3));
  EXPECT_EQ(window.Quantiles(kStart + seconds(61 * 3)).count, 1u);
}

TEST(LatencyWindowTest, TakesWhatIsOutOfRangeAsTheNearest) {
  LatencyWindow window;
  window.Add(Duration(0), 1, kStart);
  window.Add(std::chrono::hours(5), 1, kStart);
  const LatencyQuantiles told = window.Quantiles(kStart);
  EXPECT_EQ(told.count, 2u);
  EXPECT_LT(told.p50, milliseconds(1));
  EXPECT_GT(told.p99, seconds(900));
}

TEST(LatencyWindowTest, HasNothingToTellAtFirst) {
  const LatencyQuantiles told = LatencyWindow().Quantiles(kStart);
  EXPECT_EQ(told.count, 0u);
  EXPECT_EQ(told.p99, Duration(0));
}

}  // namespace
}  // namespace tidepool::conductor
