// Counts what a test program allocates, to prove that a warm loop allocates
// nothing. Include it in one source file of the program: it replaces the global
// operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace tidepool::fakes {

// Calls of operator new since the start, of all threads.
inline std::atomic<int64_t> allocations = 0;

}  // namespace tidepool::fakes

// Not inlined, or the compiler sees malloc paired with delete and objects.
[[gnu::noinline]] void* operator new(size_t size) {
  tidepool::fakes::allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  tidepool::fakes::allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, static_cast<size_t>(alignment), size) == 0)
    return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory,
                                       std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t,
                                       std::align_val_t) noexcept {
  std::free(memory);
}
