// Monotonic time, and a clock that tests and the simulator can drive.
#pragma once

#include <atomic>
#include <chrono>

namespace tidepool {

using Duration = std::chrono::nanoseconds;
using Seconds = std::chrono::duration<double>;

// Time since an arbitrary start; never jumps with the wall clock.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;

  // The process's monotonic clock; lives forever.
  static const Clock& Monotonic();
};

// Stands still until told otherwise. Thread-safe.
class ManualClock : public Clock {
 public:
  TimePoint Now() const override {
    return TimePoint(Duration(now_.load(std::memory_order_acquire)));
  }
  void Advance(Duration by) {
    now_.fetch_add(by.count(), std::memory_order_acq_rel);
  }
  void Set(TimePoint to) {
    now_.store(to.time_since_epoch().count(), std::memory_order_release);
  }

 private:
  std::atomic<Duration::rep> now_ = 0;
};

// Seconds since the Unix epoch: for timestamps shown to people and in API
// answers, never for timeouts.
double UnixSeconds();

}  // namespace tidepool
