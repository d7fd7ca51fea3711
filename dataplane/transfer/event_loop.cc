#include "dataplane/transfer/event_loop.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "dataplane/base/check.h"

namespace tidepool::transfer::internal {

StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return ErrnoError(errno, "event loop: epoll_create1");
  UniqueFd wakeup(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup) return ErrnoError(errno, "event loop: eventfd");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wakeup.get(), &event) != 0)
    return ErrnoError(errno, "event loop: epoll_ctl");
  return std::unique_ptr<EventLoop>(
      new EventLoop(std::move(epoll), std::move(wakeup)));
}

StatusOr<EventLoop::WatchId> EventLoop::Watch(
    int fd, uint32_t events, std::function<void(uint32_t)> on_ready) {
  const WatchId id = next_id_++;
  epoll_event event{.events = events, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return ErrnoError(errno, "event loop: epoll_ctl");
  watched_[id] = std::make_shared<Watched>(
      Watched{.fd = fd, .events = events, .on_ready = std::move(on_ready)});
  return id;
}

void EventLoop::SetEvents(WatchId watch, uint32_t events) {
  const auto found = watched_.find(watch);
  CHECK(found != watched_.end());
  Watched& watched = *found->second;
  if (watched.events == events) return;
  watched.events = events;
  epoll_event event{.events = events, .data = {.u64 = watch}};
  CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, watched.fd, &event) == 0);
}

void EventLoop::Unwatch(WatchId watch) {
  const auto found = watched_.find(watch);
  if (found == watched_.end()) return;
  CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second->fd, nullptr) ==
        0);
  watched_.erase(found);
}

EventLoop::TimerId EventLoop::RunAt(TimePoint time, Task task) {
  const TimerId id(time, next_id_++);
  timers_.emplace(id, std::move(task));
  return id;
}

void EventLoop::CancelTimer(const TimerId& timer) { timers_.erase(timer); }

void EventLoop::Post(Task task) {
  bool first;
  {
    const MutexLock lock(&mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(task));
  }
  if (!first) return;  // the wakeup is already on its way
  const uint64_t one = 1;
  // A full counter means that the loop is woken already.
  if (write(wakeup_.get(), &one, sizeof(one)) < 0) CHECK(errno == EAGAIN);
}

int EventLoop::WaitMilliseconds() const {
  if (timers_.empty()) return -1;
  const Duration left = timers_.begin()->first.first - Clock::Monotonic().Now();
  if (left <= Duration::zero()) return 0;
  // Rounded up: waking early would spin.
  constexpr Duration kLongest = std::chrono::hours(1);
  return static_cast<int>(
      std::chrono::ceil<std::chrono::milliseconds>(std::min(left, kLongest))
          .count());
}

void EventLoop::RunTimers() {
  const TimePoint now = Clock::Monotonic().Now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
}

void EventLoop::RunPosted() {
  std::vector<Task> tasks;
  {
    const MutexLock lock(&mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) task();
}

void EventLoop::Run() {
  thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  std::array<epoll_event, 64> events;
  while (!stopped_) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(),
                                 WaitMilliseconds());
    CHECK(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == 0) {
        uint64_t ignored;
        if (read(wakeup_.get(), &ignored, sizeof(ignored)) < 0)
          CHECK(errno == EAGAIN);
        continue;
      }
      // An earlier handler of this round may have unwatched it; a handler may
      // unwatch itself while it runs.
      const auto found = watched_.find(events[i].data.u64);
      if (found == watched_.end()) continue;
      const std::shared_ptr<Watched> watched = found->second;
      watched->on_ready(events[i].events);
    }
    RunTimers();
    RunPosted();
  }
}

}  // namespace tidepool::transfer::internal
