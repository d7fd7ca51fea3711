#include "dataplane/base/wake_queue.h"

#include <gtest/gtest.h>

namespace tidepool {
namespace {

using std::chrono::seconds;

TimePoint At(int second) { return TimePoint(seconds(second)); }

TEST(WakeQueueTest, PopsInOrderOfTimeAndOnlyWhatIsDue) {
  WakeQueue<int> queue;
  EXPECT_EQ(queue.next(), TimePoint::max());
  queue.Arm(1, At(5));
  queue.Arm(2, At(3));
  EXPECT_EQ(queue.next(), At(3));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.PopDue(At(2)), std::nullopt);
  EXPECT_EQ(queue.PopDue(At(5)), 2);
  EXPECT_EQ(queue.PopDue(At(5)), 1);
  EXPECT_EQ(queue.PopDue(At(5)), std::nullopt);
}

TEST(WakeQueueTest, KeepsTheEarliestTimeOfAnId) {
  WakeQueue<int> queue;
  queue.Arm(1, At(5));
  queue.Arm(1, At(9));
  EXPECT_EQ(queue.next(), At(5));
  queue.Arm(1, At(2));
  EXPECT_EQ(queue.PopDue(At(2)), 1);
  EXPECT_EQ(queue.next(), TimePoint::max());
}

TEST(WakeQueueTest, ForgetsADisarmedId) {
  WakeQueue<int> queue;
  queue.Arm(1, At(5));
  queue.Disarm(1);
  queue.Disarm(7);
  EXPECT_EQ(queue.PopDue(At(9)), std::nullopt);
}

}  // namespace
}  // namespace tidepool
