// A mutex under which threads wait for conditions.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tidepool {

// As much of absl::Mutex as we use; guarded members carry ABSL_GUARDED_BY and
// are checked by the `tidy` preset. Two things are better here than in the
// distribution's absl: timeouts are by the monotonic clock, where a wall clock
// that is set back would prolong them by as much, and the thread sanitizer
// knows what is ordered.
//
// Who waits is woken by whoever makes the condition true, the longest waiting
// first. A condition looks at nothing but what the mutex guards.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    if (!waiters_.empty()) WakeNext();
    mutex_.unlock();
  }

  // The mutex is held, but for the time of the wait.
  void Await(const absl::Condition& condition) {
    AwaitUntil(condition, std::nullopt);
  }
  // Whether the condition is true now, after at most `timeout`.
  bool AwaitWithTimeout(const absl::Condition& condition,
                        absl::Duration timeout);

 private:
#ifdef __SANITIZE_THREAD__
  using WaitClock = std::chrono::system_clock;  // it knows waits by no other
#else
  using WaitClock = std::chrono::steady_clock;
#endif
  struct Waiter {
    const absl::Condition& condition;
    std::condition_variable woken;
  };

  bool AwaitUntil(const absl::Condition& condition,
                  std::optional<WaitClock::time_point> end);
  void WakeNext();

  std::mutex mutex_;
  std::vector<Waiter*> waiters_;  // on their stacks; guarded by mutex_
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

}  // namespace tidepool
