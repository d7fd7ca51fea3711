// A few threads for work that must not hold up the network.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "dataplane/base/bounded_queue.h"

namespace tidepool::conductor {

// Runs tasks in the order of Post, `threads` at a time. Thread-safe.
class TaskPool {
 public:
  TaskPool(int threads, size_t queue_capacity);
  // Runs what is queued, then joins.
  ~TaskPool();

  // False, without running it, if the queue is full.
  [[nodiscard]] bool Post(std::function<void()> task);

 private:
  void Run();

  std::atomic<bool> closing_ = false;
  BoundedQueue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace tidepool::conductor
