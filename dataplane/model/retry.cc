#include "dataplane/model/retry.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace tidepool::model {

void WaitFor(Duration duration, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_for(lock, stop, duration, [] { return false; });
}

Retrier::Retrier(RetryPolicy policy, const Clock& clock, TimePoint deadline,
                 std::stop_token stop, WaitFunction wait, uint64_t jitter_seed)
    : policy_(policy),
      clock_(clock),
      deadline_(deadline),
      stop_(std::move(stop)),
      wait_(std::move(wait)),
      random_(jitter_seed) {}

Status Retrier::Next(const Status& error, Duration at_least, bool progressed) {
  if (error.code() != Code::kUnavailable) return error;
  if (progressed) failures_ = 0;
  ++failures_;
  if (failures_ >= policy_.failures_max) {
    return Annotate(error, fmt::format("gave up after {} attempts without "
                                       "progress",
                                       failures_));
  }
  const int doublings = std::min(failures_ - 1, 20);
  const Duration longest = std::min(
      policy_.wait_max, policy_.first_wait * (int64_t{1} << doublings));
  // Half fixed, half random, so that many clients do not return together.
  const Duration backoff =
      longest / 2 +
      Duration(static_cast<Duration::rep>(
          random_.Unit() * static_cast<double>(longest.count()) / 2));
  const Duration wait = std::max(backoff, at_least);
  if (clock_.Now() + wait >= deadline_) {
    return MakeError(Code::kDeadlineExceeded, "no time left to try again: {}",
                     MessageOf(error));
  }
  wait_(wait, stop_);
  if (stop_.stop_requested())
    return MakeError(Code::kCancelled, "cancelled after: {}", MessageOf(error));
  return OkStatus();
}

}  // namespace tidepool::model
