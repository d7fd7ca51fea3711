#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"

namespace tidepool {

// A first-in first-out queue between threads that never holds more than
// `capacity` items. Thread-safe.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False, with `item` untouched, when full or closed: the caller decides what
  // overflow means.
  [[nodiscard]] bool TryPush(T& item) {
    const MutexLock lock(&mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    return true;
  }
  [[nodiscard]] bool TryPush(T&& item) { return TryPush(item); }

  // The oldest item; nullopt after `timeout`, or when closed and empty.
  std::optional<T> Pop(Duration timeout) {
    const MutexLock lock(&mutex_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closed_ || !items_.empty();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::FromChrono(timeout));
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  // Everything queued, without waiting.
  std::deque<T> TakeAll() {
    const MutexLock lock(&mutex_);
    return std::exchange(items_, {});
  }

  // Wakes all waiters; later pushes fail, queued items can still be popped.
  void Close() {
    const MutexLock lock(&mutex_);
    closed_ = true;
  }

  size_t size() const {
    const MutexLock lock(&mutex_);
    return items_.size();
  }

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidepool
