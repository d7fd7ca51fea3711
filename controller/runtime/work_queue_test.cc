#include "controller/runtime/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace tidepool::runtime {
namespace {

using kube::ObjectKey;
using std::chrono::milliseconds;
using std::chrono::seconds;

const ObjectKey kA{"space", "a"};
const ObjectKey kB{"space", "b"};
const ObjectKey kC{"space", "c"};

class WorkQueueTest : public ::testing::Test {
 protected:
  std::string Next() {
    const auto item = queue_.TryPop();
    return item ? item->key().name : "";
  }

  ManualClock clock_;
  WorkQueue queue_{{.keys_max = 4}, clock_};
};

TEST_F(WorkQueueTest, HandsOutEachKeyOnceInOrder) {
  queue_.Add(kB);
  queue_.Add(kA);
  queue_.Add(kB);
  EXPECT_EQ(queue_.waiting(), 2u);
  EXPECT_EQ(Next(), "b");
  EXPECT_EQ(Next(), "a");
  EXPECT_EQ(Next(), "");
}

TEST_F(WorkQueueTest, DeferredKeysComeAfterTheOthers) {
  queue_.AddDeferred(kA);
  queue_.AddDeferred(kB);
  queue_.Add(kC);
  queue_.Add(kB);  // something happened to it
  EXPECT_EQ(queue_.waiting(), 3u);
  EXPECT_EQ(Next(), "c");
  EXPECT_EQ(Next(), "b");
  EXPECT_EQ(Next(), "a");
  EXPECT_EQ(Next(), "");
}

TEST_F(WorkQueueTest, EveryFourthKeyIsADeferredOne) {
  queue_.AddDeferred(kA);
  std::string order;
  for (int i = 0; i < 5; ++i) {
    queue_.Add(kB);
    order += Next();
  }
  EXPECT_EQ(order, "bbbab");
}

TEST_F(WorkQueueTest, WhatWaitsCanBeDeferredAndPutInOrder) {
  queue_.Add(kA);
  queue_.Add(kB);
  queue_.DeferAll();
  queue_.AddDeferred(kA);  // to the end
  queue_.Add(kC);
  EXPECT_EQ(Next(), "c");
  EXPECT_EQ(Next(), "b");
  EXPECT_EQ(Next(), "a");
  EXPECT_TRUE(queue_.idle());
  {
    queue_.Add(kA);
    const auto item = queue_.TryPop();
    queue_.AddDeferred(kA);
    EXPECT_FALSE(queue_.TryPop());
  }
  EXPECT_EQ(Next(), "a");
}

TEST_F(WorkQueueTest, AKeyInHandComesAgainOnlyAfterwards) {
  queue_.Add(kA);
  {
    const auto item = queue_.TryPop();
    ASSERT_TRUE(item);
    queue_.Add(kA);
    queue_.Add(kA);
    EXPECT_FALSE(queue_.TryPop());
    EXPECT_EQ(queue_.running(), 1u);
  }
  EXPECT_EQ(Next(), "a");
  EXPECT_EQ(Next(), "");
}

TEST_F(WorkQueueTest, DelaysAreKeptAndTheEarliestWins) {
  queue_.AddAfter(kA, seconds(10));
  queue_.AddAfter(kA, seconds(5));
  queue_.AddAfter(kA, seconds(20));
  EXPECT_EQ(queue_.next_due(), clock_.Now() + seconds(5));
  clock_.Advance(seconds(4));
  EXPECT_EQ(Next(), "");
  clock_.Advance(seconds(1));
  EXPECT_EQ(Next(), "a");
  clock_.Advance(seconds(60));
  EXPECT_EQ(Next(), "");
}

TEST_F(WorkQueueTest, AKeyHandedOutEarlyIsNotHandedOutAgainForItsDelay) {
  queue_.AddAfter(kA, seconds(10));
  queue_.Add(kA);
  EXPECT_EQ(Next(), "a");
  clock_.Advance(seconds(60));
  EXPECT_EQ(Next(), "");
}

TEST_F(WorkQueueTest, FailuresBackOffUpToABoundUntilForgotten) {
  Duration last = Duration::zero();
  for (int i = 0; i < 40; ++i) {
    queue_.AddFailed(kA);
    const Duration wait = queue_.next_due() - clock_.Now();
    EXPECT_GE(wait, i == 0 ? milliseconds(75) : milliseconds(100));
    EXPECT_LE(wait, seconds(60));
    clock_.Advance(wait);
    last = wait;
    EXPECT_EQ(Next(), "a");
  }
  EXPECT_GE(last, seconds(45));
  EXPECT_EQ(queue_.failures(kA), 40u);
  queue_.Forget(kA);
  queue_.AddFailed(kA);
  EXPECT_LE(queue_.next_due() - clock_.Now(), milliseconds(100));
}

TEST_F(WorkQueueTest, BeyondItsCapacityKeysAreDroppedAndCounted) {
  for (int i = 0; i < 6; ++i) queue_.Add({"space", std::to_string(i)});
  queue_.AddAfter({"space", "late"}, seconds(1));
  EXPECT_EQ(queue_.waiting(), 4u);
  EXPECT_EQ(queue_.dropped_total(), 3u);
  EXPECT_EQ(Next(), "0");
  queue_.Add(kA);
  EXPECT_EQ(queue_.waiting(), 4u);
}

TEST_F(WorkQueueTest, NothingComesOutOnceClosed) {
  queue_.Add(kA);
  queue_.Close();
  EXPECT_EQ(Next(), "");
  EXPECT_FALSE(queue_.Pop(seconds(60)));
}

TEST_F(WorkQueueTest, AWaiterIsWokenByAKeyAndByTheEnd) {
  std::vector<std::string> seen;
  std::thread waiter([&] {
    while (const auto item = queue_.Pop(std::chrono::minutes(1)))
      seen.push_back(item->key().name);
  });
  queue_.Add(kA);
  while (!queue_.idle()) std::this_thread::yield();
  queue_.Close();
  waiter.join();
  EXPECT_EQ(seen, std::vector<std::string>{"a"});
}

TEST(WorkQueueThreadsTest, NoKeyIsInTwoHandsAndNoAddIsLost) {
  constexpr int kKeys = 7;
  constexpr int kAdds = 4000;
  WorkQueue queue({}, Clock::Monotonic());
  std::atomic<int> holders[kKeys] = {};
  std::atomic<int> wanted[kKeys] = {};
  std::atomic<int> served[kKeys] = {};
  std::vector<std::thread> workers;
  for (int i = 0; i < 4; ++i)
    workers.emplace_back([&] {
      while (const auto item = queue.Pop(seconds(60))) {
        const int key = std::stoi(item->key().name);
        EXPECT_EQ(holders[key].fetch_add(1), 0);
        // What was added before is seen from here.
        served[key] = wanted[key].load();
        holders[key].fetch_sub(1);
      }
    });
  for (int i = 0; i < kAdds; ++i) {
    const int key = i % kKeys;
    wanted[key].fetch_add(1);
    if (i % 3 == 0)
      queue.AddAfter({"", std::to_string(key)}, std::chrono::microseconds(50));
    else
      queue.Add({"", std::to_string(key)});
  }
  while (!queue.idle()) std::this_thread::yield();
  queue.Close();
  for (std::thread& worker : workers) worker.join();
  for (int key = 0; key < kKeys; ++key) EXPECT_EQ(served[key], wanted[key]);
}

}  // namespace
}  // namespace tidepool::runtime
