// Virtual time: the only clock of the simulation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/clock.h"

namespace tidepool::sim {

// Events of one time run in the order in which they were scheduled.
class EventQueue {
 public:
  TimePoint now() const { return now_; }

  void At(TimePoint time, std::function<void()> run) {
    events_.push({std::max(time, now_), next_++, std::move(run)});
  }
  void In(Duration delay, std::function<void()> run) {
    At(now_ + delay, std::move(run));
  }

  // False if there is no event until `end`; time is then `end`.
  bool RunNext(TimePoint end) {
    if (events_.empty() || events_.top().time > end) {
      now_ = end;
      return false;
    }
    // The queue gives no mutable access to its top, which is popped at once.
    std::function<void()> run =
        std::move(const_cast<Event&>(events_.top()).run);
    now_ = events_.top().time;
    events_.pop();
    run();
    return true;
  }

 private:
  struct Event {
    TimePoint time;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {  // the earliest on top
      return std::pair(other.time, other.order) < std::pair(time, order);
    }
  };

  TimePoint now_{};
  uint64_t next_ = 0;
  std::priority_queue<Event> events_;
};

// Told of whatever is wrong.
using Report = std::function<void(const std::string&)>;

// Something that can die and be paused (as by SIGSTOP, or a page fault storm).
// A pause only gets longer, or what it held up would be overtaken.
// Owned by shared pointers, so that events that outlive it find out.
struct Process : std::enable_shared_from_this<Process> {
  virtual ~Process() = default;
  bool alive = true;
  TimePoint paused_until{};
  void PauseUntil(TimePoint until) {
    paused_until = std::max(paused_until, until);
  }
};

// Runs `run` in `process` at `time`, later if it is paused then, never if it
// is dead then. Keeps the order of what a pause held up.
inline void PostAt(EventQueue& queue, std::shared_ptr<Process> process,
                   TimePoint time, std::function<void()> run) {
  queue.At(time, [&queue, process = std::move(process),
                  run = std::move(run)]() mutable {
    if (!process->alive) return;
    if (process->paused_until > queue.now()) {
      const TimePoint later = process->paused_until;
      return PostAt(queue, std::move(process), later, std::move(run));
    }
    run();
  });
}

}  // namespace tidepool::sim
