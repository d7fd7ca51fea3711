#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"

namespace tidepool::worker {

// What happens to the core, in order, from all threads to the one that runs it.
// Thread-safe.
class Inbox {
 public:
  using Task = absl::AnyInvocable<void(TimePoint now)>;

  // `capacity` bounds what comes from outside (TryPost).
  explicit Inbox(size_t capacity) : capacity_(capacity) {}

  // For what the outside starts: false when too much is waiting already.
  [[nodiscard]] bool TryPost(Task task) {
    const MutexLock lock(&mutex_);
    if (closed_ || tasks_.size() >= capacity_) return false;
    tasks_.push_back(std::move(task));
    return true;
  }

  // For answers to what the core itself asked for, which bounds them.
  void Post(Task task) {
    const MutexLock lock(&mutex_);
    if (!closed_) tasks_.push_back(std::move(task));
  }

  // Everything there is, waiting for something until `deadline`. Empty at the
  // deadline, or when closed.
  std::deque<Task> Take(TimePoint deadline) {
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closed_ || !tasks_.empty();
    };
    // Also bounds a deadline of TimePoint::max().
    constexpr Duration kLongest = std::chrono::hours(1);
    const TimePoint now = Clock::Monotonic().Now();
    const Duration left = deadline > now + kLongest
                              ? kLongest
                              : std::max(deadline - now, Duration::zero());
    const MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::FromChrono(left));
    return std::exchange(tasks_, {});
  }

  void Close() {
    const MutexLock lock(&mutex_);
    closed_ = true;
    tasks_.clear();
  }
  bool closed() const {
    const MutexLock lock(&mutex_);
    return closed_;
  }

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidepool::worker
