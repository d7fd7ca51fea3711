#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

  // What comes from outside (TryPost) is bounded by `capacity` tasks, which
  // hold `bytes_max` together.
  Inbox(size_t capacity, uint64_t bytes_max)
      : capacity_(capacity), bytes_max_(bytes_max) {}

  // For what the outside starts, holding `bytes`: false when too much is
  // waiting already.
  [[nodiscard]] bool TryPost(uint64_t bytes, Task task) {
    const MutexLock lock(&mutex_);
    if (closed_ || tasks_.size() >= capacity_ || bytes > bytes_max_ - bytes_)
      return false;
    bytes_ += bytes;
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
    bytes_ = 0;
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
  const uint64_t bytes_max_;
  mutable Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // at most bytes_max_
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidepool::worker
