// What the machine could do at best, measured beside what the engine does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/engine/thread_pool.h"

namespace tidepool::engine {

// Multiply-adds of bfloat16 pairs on registers alone (VDPBF16PS, 24
// independent chains): how many floating point operations `rounds` of them
// are. 0 where the processor has no such instruction.
int64_t DotFlops(int64_t rounds);
void RunDots(int64_t rounds);

// Reads `bytes` once, in order, by all threads of the pool.
void ReadMemory(const std::byte* data, int64_t bytes, ThreadPool& pool);

}  // namespace tidepool::engine
