// Trying again, with bounds.
#pragma once

#include <functional>
#include <stop_token>

#include "dataplane/base/clock.h"
#include "dataplane/base/random.h"
#include "dataplane/base/status.h"

namespace tidepool::model {

struct RetryPolicy {
  int failures_max = 6;  // in a row, without progress in between
  Duration first_wait = std::chrono::seconds(1);  // doubles each time
  Duration wait_max = std::chrono::seconds(30);
};

// Waits as long as told, less if `stop` asks for it.
using WaitFunction = std::function<void(Duration, const std::stop_token&)>;
void WaitFor(Duration duration, const std::stop_token& stop);

// Counts the failures of one undertaking and waits between its attempts.
// Confined to one thread.
class Retrier {
 public:
  // `clock` must outlive the object.
  Retrier(RetryPolicy policy, const Clock& clock, TimePoint deadline,
          std::stop_token stop, WaitFunction wait, uint64_t jitter_seed);

  // OK when the time for another attempt has come, at least `at_least` after
  // now. Otherwise what to give up with: `error` itself unless it is
  // kUnavailable, or with the number of attempts; kDeadlineExceeded;
  // kCancelled. `progressed`: the attempt moved something, and failures are
  // counted anew.
  Status Next(const Status& error, Duration at_least, bool progressed);

 private:
  const RetryPolicy policy_;
  const Clock& clock_;
  const TimePoint deadline_;
  const std::stop_token stop_;
  const WaitFunction wait_;
  Random random_;
  int failures_ = 0;
};

}  // namespace tidepool::model
