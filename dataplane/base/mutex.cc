#include "dataplane/base/mutex.h"

#include <algorithm>

namespace tidepool {

bool Mutex::AwaitWithTimeout(const absl::Condition& condition,
                             absl::Duration timeout) {
  // Beyond is as good as never, and could not be added to a time.
  constexpr absl::Duration kLongest = absl::Hours(24 * 365);
  if (timeout > kLongest) return AwaitUntil(condition, std::nullopt);
  return AwaitUntil(condition,
                    WaitClock::now() + absl::ToChronoNanoseconds(std::max(
                                           timeout, absl::ZeroDuration())));
}

bool Mutex::AwaitUntil(const absl::Condition& condition,
                       std::optional<WaitClock::time_point> end) {
  if (condition.Eval()) return true;
  // The wait releases the mutex: that is an Unlock for others.
  WakeNext();
  Waiter self{.condition = condition};
  waiters_.push_back(&self);
  std::unique_lock lock(mutex_, std::adopt_lock);
  bool is_met = false, in_time = true;
  while (!is_met && in_time) {
    if (end)
      in_time = self.woken.wait_until(lock, *end) == std::cv_status::no_timeout;
    else
      self.woken.wait(lock);
    is_met = condition.Eval();
  }
  std::erase(waiters_, &self);
  lock.release();
  return is_met;
}

// One suffices: it wakes the next when it is done.
void Mutex::WakeNext() {
  const auto next = std::ranges::find_if(
      waiters_, [](const Waiter* waiter) { return waiter->condition.Eval(); });
  if (next != waiters_.end()) (*next)->woken.notify_one();
}

}  // namespace tidepool
