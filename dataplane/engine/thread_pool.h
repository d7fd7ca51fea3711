// Threads that run the parts of one loop at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "dataplane/base/status.h"

namespace tidepool::engine {

// Runs loops on the calling thread and `threads - 1` of its own. Parts are
// claimed as threads become free, large ones first, so a thread that the
// machine is slow to run costs little; which thread runs a part is not
// reproducible, so a part's result must not depend on it.
//
// For is confined to one thread at a time. With one thread there is no
// synchronization at all. Waiting threads spin for some microseconds and then
// sleep: workers often share cores with other processes.
class ThreadPool {
 public:
  // `threads`: at least 1. Errors: kResourceExhausted (the system refuses a
  // thread).
  static StatusOr<std::unique_ptr<ThreadPool>> Create(int32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t threads() const { return threads_; }

  // Calls function(begin, end, thread) for parts that together cover
  // [0, items) once, thread in [0, threads()); returns when all are done. Up
  // to `inline_items` items are run by the caller alone. Does not allocate.
  template <typename Function>
  void For(int64_t items, int64_t inline_items, const Function& function) {
    if (threads_ == 1 || items <= inline_items) {
      if (items > 0) function(int64_t{0}, items, int32_t{0});
      return;
    }
    Run(items, &function,
        [](const void* context, int64_t begin, int64_t end, int32_t thread) {
          (*static_cast<const Function*>(context))(begin, end, thread);
        });
  }

 private:
  using Part = void (*)(const void* context, int64_t begin, int64_t end,
                        int32_t thread);

  explicit ThreadPool(int32_t threads) : threads_(threads) {}
  void Run(int64_t items, const void* context, Part part);
  void RunParts(int32_t thread);
  void WorkerMain(int32_t thread);

  const int32_t threads_;
  // Of the current loop; written while no worker runs.
  int64_t items_ = 0;
  const void* context_ = nullptr;
  Part part_ = nullptr;
  // Apart, since all threads write them.
  alignas(64) std::atomic<int64_t> next_ = 0;
  alignas(64) std::atomic<uint32_t> loops_ = 0;  // started so far
  alignas(64) std::atomic<uint32_t> busy_ = 0;   // workers in this loop
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> workers_;  // last: they use all of the above
};

}  // namespace tidepool::engine
