#include "dataplane/model/retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tidepool::model {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class RetrierTest : public ::testing::Test {
 protected:
  Retrier Make(RetryPolicy policy, Duration timeout = 1h) {
    return Retrier(
        policy, clock_, clock_.Now() + timeout, stop_.get_token(),
        [this](Duration wait, const std::stop_token&) {
          waits_.push_back(wait);
          clock_.Advance(wait);
        },
        /*jitter_seed=*/7);
  }

  ManualClock clock_;
  std::stop_source stop_;
  std::vector<Duration> waits_;
  const Status failure_ = Unavailable("broken");
};

TEST_F(RetrierTest, WaitsDoubleUpToTheirLimit) {
  Retrier retrier = Make({.failures_max = 7, .first_wait = 1s, .wait_max = 5s});
  const Duration longest[] = {1s, 2s, 4s, 5s, 5s, 5s};
  for (size_t i = 0; i < std::size(longest); ++i) {
    ASSERT_TRUE(retrier.Next(failure_, 0s, false).ok());
    EXPECT_GE(waits_[i], longest[i] / 2);
    EXPECT_LE(waits_[i], longest[i]);
  }
  const Status last = retrier.Next(failure_, 0s, false);
  EXPECT_EQ(last.code(), Code::kUnavailable);
  EXPECT_THAT(MessageOf(last), HasSubstr("gave up after 7 attempts"));
}

TEST_F(RetrierTest, ProgressStartsTheCountAnew) {
  Retrier retrier = Make({.failures_max = 2, .first_wait = 1s});
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(retrier.Next(failure_, 0s, /*progressed=*/true).ok());
  EXPECT_LE(waits_.back(), 1s);
  EXPECT_FALSE(retrier.Next(failure_, 0s, /*progressed=*/false).ok());
}

TEST_F(RetrierTest, WaitsAtLeastAsLongAsAsked) {
  Retrier retrier = Make({.first_wait = 1s});
  ASSERT_TRUE(retrier.Next(failure_, 20s, false).ok());
  EXPECT_EQ(waits_[0], 20s);
}

TEST_F(RetrierTest, ErrorsThatStayAreReturnedAsTheyAre) {
  Retrier retrier = Make({});
  const Status error = NotFound("gone");
  EXPECT_EQ(retrier.Next(error, 0s, true), error);
  EXPECT_TRUE(waits_.empty());
}

TEST_F(RetrierTest, NeverWaitsPastTheDeadline) {
  Retrier retrier = Make({}, /*timeout=*/10s);
  const Status status = retrier.Next(failure_, 10s, false);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(MessageOf(status), HasSubstr("broken"));
  EXPECT_TRUE(waits_.empty());
}

TEST_F(RetrierTest, StopsWhenAsked) {
  Retrier retrier = Make({});
  stop_.request_stop();
  EXPECT_EQ(retrier.Next(failure_, 0s, false).code(), Code::kCancelled);
}

TEST(WaitForTest, AStopEndsTheWait) {
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  WaitFor(24h, stop.get_token());
  EXPECT_TRUE(stop.stop_requested());
}

}  // namespace
}  // namespace tidepool::model
