// absl's mutex under our namespace; guarded members carry
// ABSL_GUARDED_BY and are checked by the `tidy` preset.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#ifdef __SANITIZE_THREAD__
#include <chrono>
#include <condition_variable>
#include <mutex>
#endif

namespace tidepool {

#ifdef __SANITIZE_THREAD__

// The distribution's absl is built without the thread sanitizer, which would
// take everything that absl::Mutex orders for a race. Here stands the part of
// its interface that we use, over a mutex the sanitizer knows.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    changed_.notify_all();
    mutex_.unlock();
  }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}
  void Await(const absl::Condition& condition) {
    std::unique_lock lock(mutex_, std::adopt_lock);
    while (!condition.Eval()) changed_.wait(lock);
    lock.release();
  }
  bool AwaitWithTimeout(const absl::Condition& condition,
                        absl::Duration timeout) {
    std::unique_lock lock(mutex_, std::adopt_lock);
    // Not the monotonic clock: this sanitizer does not intercept waits on it.
    const auto end = std::chrono::system_clock::now() +
                     absl::ToChronoMicroseconds(
                         timeout < absl::Hours(1) ? timeout : absl::Hours(1));
    bool met = condition.Eval();
    while (!met && changed_.wait_until(lock, end) == std::cv_status::no_timeout)
      met = condition.Eval();
    met = met || condition.Eval();
    lock.release();
    return met;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
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

#else

using absl::Mutex;
using absl::MutexLock;

#endif

}  // namespace tidepool
