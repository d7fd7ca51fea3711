#pragma once

#include "absl/time/time.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"

namespace tidepool {

// Something that happens once, for others to wait for. Thread-safe; Notify
// must have returned before it is destroyed, which Wait ensures.
class Notification {
 public:
  void Notify() {
    const MutexLock lock(&mutex_);
    happened_ = true;
  }
  bool happened() const {
    const MutexLock lock(&mutex_);
    return happened_;
  }
  void Wait() const {
    const MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&happened_));
  }
  // False if `timeout` passed first.
  bool WaitFor(Duration timeout) const {
    const MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&happened_),
                                   absl::FromChrono(timeout));
  }

 private:
  mutable Mutex mutex_;
  bool happened_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidepool
