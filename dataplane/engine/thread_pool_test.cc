#include "dataplane/engine/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <vector>

namespace tidepool::engine {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<ThreadPool> Make(int32_t threads) {
  auto pool = ThreadPool::Create(threads);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

TEST(ThreadPoolTest, RunsEveryItemOnce) {
  for (const int32_t threads : {1, 2, 3, 8}) {
    const auto pool = Make(threads);
    for (const int64_t items : {0, 1, 2, 7, 8, 9, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(items));
      pool->For(items, 1, [&](int64_t begin, int64_t end, int32_t thread) {
        EXPECT_LT(begin, end);
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        for (int64_t i = begin; i < end; ++i) runs[i].fetch_add(1);
      });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, FewItemsRunOnTheCaller) {
  const auto pool = Make(4);
  const auto caller = std::this_thread::get_id();
  pool->For(5, 5, [&](int64_t begin, int64_t end, int32_t thread) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 5);
    EXPECT_EQ(thread, 0);
  });
}

TEST(ThreadPoolTest, APartSeesWhatEarlierLoopsWrote) {
  const auto pool = Make(3);
  std::vector<int64_t> values(64, 0);
  for (int64_t round = 0; round < 2000; ++round) {
    pool->For(64, 1, [&](int64_t begin, int64_t end, int32_t /*thread*/) {
      for (int64_t i = begin; i < end; ++i) {
        // Another thread may have written it in the round before.
        ASSERT_EQ(values[i], round);
        ++values[i];
      }
    });
  }
}

TEST(ThreadPoolTest, SaysThatTheSystemRefusesAThread) {
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  // More than there are addresses.
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const auto pool = ThreadPool::Create(4);
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(MessageOf(pool.status()), HasSubstr("number 2 of 4"));
}

}  // namespace
}  // namespace tidepool::engine
