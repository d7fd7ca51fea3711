#include "dataplane/conductor/task_pool.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace tidepool::conductor {
namespace {

constexpr std::chrono::hours kForever{24};

}  // namespace

TaskPool::TaskPool(int threads, size_t queue_capacity)
    : queue_(queue_capacity) {
  for (int i = 0; i < std::max(threads, 1); ++i)
    threads_.emplace_back([this] { Run(); });
}

TaskPool::~TaskPool() {
  closing_.store(true);
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

bool TaskPool::Post(std::function<void()> task) {
  return queue_.TryPush(std::move(task));
}

void TaskPool::Run() {
  for (;;) {
    std::optional<std::function<void()>> task = queue_.Pop(kForever);
    if (task)
      (*task)();
    else if (closing_.load())
      return;
  }
}

}  // namespace tidepool::conductor
