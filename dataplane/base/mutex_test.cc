#include "dataplane/base/mutex.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace tidepool {
namespace {

// Threads wait for `turn` to be theirs.
class Turns {
 public:
  void Await(int mine) {
    const MutexLock lock(&mutex_);
    const auto is_mine = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return turn_ == mine;
    };
    mutex_.Await(absl::Condition(&is_mine));
  }
  bool AwaitFor(int mine, absl::Duration timeout) {
    const MutexLock lock(&mutex_);
    const auto is_mine = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return turn_ == mine;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&is_mine), timeout);
  }
  void Set(int turn) {
    const MutexLock lock(&mutex_);
    turn_ = turn;
  }

 private:
  Mutex mutex_;
  int turn_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(MutexTest, WhoeverMakesAConditionTrueWakesWhoWaitsForIt) {
  constexpr int kThreads = 4, kRounds = 500;
  Turns turns;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&turns, i] {
      for (int round = 0; round < kRounds; ++round) {
        turns.Await(round * kThreads + i);
        turns.Set(round * kThreads + i + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  turns.Await(kThreads * kRounds);
}

TEST(MutexTest, AllThatWaitForTheSameAreWoken) {
  Turns turns;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&turns, i] {
      if (i % 2 == 0)
        turns.Await(1);
      else
        EXPECT_TRUE(turns.AwaitFor(1, absl::InfiniteDuration()));
    });
  turns.Set(1);
  for (std::thread& thread : threads) thread.join();
}

TEST(MutexTest, AWaitEndsInTimeWithWhatIsTrueThen) {
  Turns turns;
  EXPECT_FALSE(turns.AwaitFor(1, absl::Milliseconds(1)));
  EXPECT_FALSE(turns.AwaitFor(1, -absl::InfiniteDuration()));
  turns.Set(1);
  EXPECT_TRUE(turns.AwaitFor(1, absl::ZeroDuration()));
}

#if !defined(__SANITIZE_THREAD__)

// What a thread of ours asks of the kernel: a wall clock that is set back must
// not prolong a wait.
TEST(MutexTest, TimeoutsAreByTheMonotonicClock) {
  constexpr unsigned long kFutexClockRealtime = 256;
  Turns turns;
  std::atomic<pid_t> thread_id = 0;
  std::thread waiter([&] {
    thread_id = gettid();
    turns.AwaitFor(1, absl::Hours(1));
  });
  while (thread_id == 0) std::this_thread::yield();
  const std::string path =
      "/proc/self/task/" + std::to_string(thread_id) + "/syscall";
  long number = -1;
  unsigned long address = 0, operation = 0, value = 0, timeout = 0;
  bool can_tell = true;
  while (can_tell && (number != SYS_futex || timeout == 0)) {
    std::ifstream file(path);
    std::string text;
    can_tell = static_cast<bool>(std::getline(file, text));
    // "running", or numbers.
    if (sscanf(text.c_str(), "%ld %lx %lx %lx %lx", &number, &address,
               &operation, &value, &timeout) != 5)
      number = -1;
  }
  turns.Set(1);
  waiter.join();
  if (!can_tell) GTEST_SKIP() << path << " cannot be read here";
  EXPECT_EQ(operation & kFutexClockRealtime, 0u) << std::hex << operation;
}

#endif

}  // namespace
}  // namespace tidepool
