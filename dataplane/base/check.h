// CHECK stops the process on a broken invariant (a bug, never bad input).
#pragma once

namespace tidepool {

// Prints `condition` with its place and aborts.
[[noreturn]] void CheckFailed(const char* condition, const char* file,
                              int line);

}  // namespace tidepool

#ifndef CHECK
#define CHECK(condition) \
  ((condition) ? (void)0 \
               : ::tidepool::CheckFailed(#condition, __FILE__, __LINE__))
#endif
