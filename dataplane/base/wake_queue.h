#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "dataplane/base/clock.h"

namespace tidepool {

// The timers of a state machine: at most one per id, and the earliest time
// asked for wins. A machine whose deadline moves away arms again when it is
// woken, so that moving a deadline costs nothing. Externally synchronized.
template <typename Id>
class WakeQueue {
 public:
  // Wakes `id` at `at` or, if it is armed for earlier, then.
  void Arm(Id id, TimePoint at) {
    const auto [it, added] = times_.try_emplace(id, at);
    if (!added) {
      if (it->second <= at) return;
      order_.erase({it->second, id});
      it->second = at;
    }
    order_.insert({at, id});
  }

  void Disarm(Id id) {
    const auto it = times_.find(id);
    if (it == times_.end()) return;
    order_.erase({it->second, id});
    times_.erase(it);
  }

  // The id with the earliest time at or before `now`, disarmed; nullopt if
  // none is due.
  std::optional<Id> PopDue(TimePoint now) {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    const Id id = order_.begin()->second;
    order_.erase(order_.begin());
    times_.erase(id);
    return id;
  }

  size_t size() const { return times_.size(); }
  // TimePoint::max() if nothing is armed.
  TimePoint next() const {
    return order_.empty() ? TimePoint::max() : order_.begin()->first;
  }

 private:
  std::map<Id, TimePoint> times_;
  std::set<std::pair<TimePoint, Id>> order_;
};

}  // namespace tidepool
