#include "dataplane/base/clock.h"

namespace tidepool {
namespace {

class MonotonicClock : public Clock {
 public:
  TimePoint Now() const override {
    return std::chrono::time_point_cast<Duration>(
        std::chrono::steady_clock::now());
  }
};

}  // namespace

const Clock& Clock::Monotonic() {
  static const MonotonicClock clock;
  return clock;
}

double UnixSeconds() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace tidepool
