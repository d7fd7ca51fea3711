// One thread that waits for sockets, timers and posted work.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::transfer::internal {

// Post and OnLoopThread are thread-safe, the rest is confined to the loop's
// thread (or to the time before Run).
class EventLoop {
 public:
  using WatchId = uint64_t;
  using TimerId = std::pair<TimePoint, uint64_t>;
  using Task = absl::AnyInvocable<void()>;

  // Errors: kResourceExhausted (no descriptors).
  static StatusOr<std::unique_ptr<EventLoop>> Create();

  // Calls `on_ready` with the epoll events of `fd` until Unwatch, which must
  // precede closing it; it may be called from within `on_ready`.
  StatusOr<WatchId> Watch(int fd, uint32_t events,
                          std::function<void(uint32_t)> on_ready);
  void SetEvents(WatchId watch, uint32_t events);
  void Unwatch(WatchId watch);

  TimerId RunAt(TimePoint time, Task task);
  void CancelTimer(const TimerId& timer);

  // Runs `task` on the loop's thread, in the order posted. What bounds the
  // number of tasks is the bound on what they are about.
  void Post(Task task);

  // Until Stop was called from a task; tasks posted before it have run.
  void Run();
  void Stop() { stopped_ = true; }
  bool OnLoopThread() const {
    return thread_.load(std::memory_order_relaxed) ==
           std::this_thread::get_id();
  }

 private:
  struct Watched {
    int fd;
    uint32_t events;
    std::function<void(uint32_t)> on_ready;
  };

  EventLoop(UniqueFd epoll, UniqueFd wakeup)
      : epoll_(std::move(epoll)), wakeup_(std::move(wakeup)) {}
  int WaitMilliseconds() const;
  void RunTimers();
  void RunPosted();

  UniqueFd epoll_, wakeup_;
  std::atomic<std::thread::id> thread_;
  bool stopped_ = false;
  uint64_t next_id_ = 1;  // 0 is the wakeup
  std::unordered_map<WatchId, std::shared_ptr<Watched>> watched_;
  std::map<TimerId, Task> timers_;

  Mutex mutex_;
  std::vector<Task> posted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::transfer::internal
