#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "dataplane/base/bounded_queue.h"
#include "dataplane/base/checked_math.h"
#include "dataplane/base/digest.h"
#include "dataplane/base/notification.h"
#include "dataplane/base/random.h"
#include "dataplane/base/status.h"

namespace tidepool {
namespace {

TEST(CheckedMathTest, OverflowIsNoValue) {
  EXPECT_EQ(CheckedMul<uint64_t>(1ull << 33, 1ull << 31), std::nullopt);
  EXPECT_EQ(CheckedAdd<uint64_t>(std::numeric_limits<uint64_t>::max(), 1),
            std::nullopt);
  EXPECT_EQ(CheckedSub<uint64_t>(1, 2), std::nullopt);
  EXPECT_EQ(CheckedMul<uint64_t>(3, 5), 15);
  EXPECT_EQ(CeilDiv(7u, 2u), 4u);
}

TEST(DigestTest, Sha256MatchesThePublishedVector) {
  EXPECT_EQ(Sha256Of("abc").Hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(DigestTest, FinishStartsAfresh) {
  Sha256 hash;
  hash.Update("something");
  hash.Finish();
  hash.Update("abc");
  EXPECT_EQ(hash.Finish(), Sha256Of("abc"));
}

TEST(RandomTest, CounterDrawsAreReproducibleAndInRange) {
  double sum = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    EXPECT_EQ(RandomAt(7, i), RandomAt(7, i));
    const double unit = ToUnit(RandomAt(7, i));
    ASSERT_GE(unit, 0.0);
    ASSERT_LT(unit, 1.0);
    sum += unit;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
  EXPECT_NE(RandomAt(7, 1), RandomAt(8, 1));
}

TEST(BoundedQueueTest, RefusesBeyondCapacityAndKeepsOrder) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  EXPECT_EQ(queue.Pop(std::chrono::seconds(0)), 1);
  EXPECT_EQ(queue.Pop(std::chrono::seconds(0)), 2);
  EXPECT_EQ(queue.Pop(std::chrono::seconds(0)), std::nullopt);
}

TEST(BoundedQueueTest, CloseWakesAWaiter) {
  BoundedQueue<int> queue(1);
  std::thread waiter(
      [&] { EXPECT_EQ(queue.Pop(std::chrono::hours(1)), std::nullopt); });
  queue.Close();
  waiter.join();
  EXPECT_FALSE(queue.TryPush(1));
}

TEST(NotificationTest, WakesAWaiter) {
  Notification notification;
  EXPECT_FALSE(notification.happened());
  EXPECT_FALSE(notification.WaitFor(std::chrono::milliseconds(1)));
  std::thread notifier([&] { notification.Notify(); });
  notification.Wait();
  EXPECT_TRUE(notification.happened());
  EXPECT_TRUE(notification.WaitFor(std::chrono::hours(1)));
  notifier.join();
}

Status Fails() { return NotFound("block {}", 7); }
StatusOr<int> PassesOn() {
  RETURN_IF_ERROR(Annotate(Fails(), "get"));
  return 1;
}

TEST(StatusTest, AnnotationKeepsTheCode) {
  EXPECT_EQ(PassesOn().status().code(), Code::kNotFound);
  EXPECT_EQ(MessageOf(PassesOn().status()), "get: block 7");
}

}  // namespace
}  // namespace tidepool
