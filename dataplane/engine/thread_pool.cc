#include "dataplane/engine/thread_pool.h"

#include <algorithm>
#include <system_error>

#include "dataplane/base/check.h"

namespace tidepool::engine {
namespace {

// About as long as a thread takes to be woken up.
constexpr int kSpins = 400;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when `value` is no longer `old`.
void WaitForChange(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

StatusOr<std::unique_ptr<ThreadPool>> ThreadPool::Create(int32_t threads) {
  CHECK(threads >= 1);
  std::unique_ptr<ThreadPool> pool(new ThreadPool(threads));
  for (int32_t thread = 1; thread < threads; ++thread) {
    try {
      pool->workers_.emplace_back(
          [pool = pool.get(), thread] { pool->WorkerMain(thread); });
    } catch (const std::system_error& error) {
      return ResourceExhausted(
          "threads: the system refuses number {} of {}: {}", thread + 1,
          threads, error.code().message());
    }
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  loops_.fetch_add(1, std::memory_order_release);
  loops_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t items, const void* context, Part part) {
  items_ = items;
  context_ = context;
  part_ = part;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<uint32_t>(threads_ - 1), std::memory_order_relaxed);
  loops_.fetch_add(1, std::memory_order_release);
  loops_.notify_all();
  RunParts(0);
  for (uint32_t busy = busy_.load(std::memory_order_acquire); busy != 0;
       busy = busy_.load(std::memory_order_acquire)) {
    WaitForChange(busy_, busy);
  }
}

void ThreadPool::RunParts(int32_t thread) {
  int64_t begin = next_.load(std::memory_order_relaxed);
  while (begin < items_) {
    const int64_t size =
        std::max<int64_t>(1, (items_ - begin) / (2 * threads_));
    if (!next_.compare_exchange_weak(begin, begin + size,
                                     std::memory_order_relaxed)) {
      continue;
    }
    part_(context_, begin, begin + size, thread);
    begin = next_.load(std::memory_order_relaxed);
  }
}

void ThreadPool::WorkerMain(int32_t thread) {
  for (uint32_t seen = 0;; ++seen) {
    WaitForChange(loops_, seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    RunParts(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

}  // namespace tidepool::engine
