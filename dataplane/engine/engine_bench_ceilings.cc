#include "dataplane/engine/engine_bench_ceilings.h"

#include <algorithm>
#include <cstring>

#include "dataplane/engine/numerics.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tidepool::engine {
namespace {

constexpr int64_t kChains = 24;
constexpr int64_t kFlopsOfDot = 16 * 2 * 2;  // lanes, products, operations
constexpr int64_t kPartBytes = 256 << 10;

bool HasDots() { return SupportedIsas().back() == Isa::kAvx512Bf16; }

// Loads all of it; `bytes` is a multiple of 256.
void Touch(const std::byte* data, int64_t bytes) {
#if defined(__x86_64__)
  if (HasDots()) {
    for (int64_t i = 0; i < bytes; i += 256) {
      asm volatile(
          "vmovdqu64 (%0), %%zmm0\n"
          "vmovdqu64 64(%0), %%zmm1\n"
          "vmovdqu64 128(%0), %%zmm2\n"
          "vmovdqu64 192(%0), %%zmm3\n"
          :
          : "r"(data + i)
          : "xmm0", "xmm1", "xmm2", "xmm3");
    }
    return;
  }
#endif
  uint64_t sums[8] = {};
  for (int64_t i = 0; i < bytes; i += sizeof(sums)) {
    uint64_t values[8];
    std::memcpy(values, data + i, sizeof(values));
    for (int j = 0; j < 8; ++j) sums[j] += values[j];
  }
  volatile uint64_t sink = sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^
                           sums[5] ^ sums[6] ^ sums[7];
  (void)sink;
}

}  // namespace

int64_t DotFlops(int64_t rounds) {
  return HasDots() ? rounds * kChains * kFlopsOfDot : 0;
}

#if defined(__x86_64__)
#define TIDEPOOL_DOT(n) "vdpbf16ps %%zmm30, %%zmm31, %%zmm" #n "\n"
void RunDots(int64_t rounds) {
  if (!HasDots()) return;
  asm volatile(
      "vpxorq %%zmm30, %%zmm30, %%zmm30\n"
      "vpxorq %%zmm31, %%zmm31, %%zmm31\n"
      "1:\n" TIDEPOOL_DOT(0) TIDEPOOL_DOT(1) TIDEPOOL_DOT(2) TIDEPOOL_DOT(3)
          TIDEPOOL_DOT(4) TIDEPOOL_DOT(5) TIDEPOOL_DOT(6) TIDEPOOL_DOT(7)
              TIDEPOOL_DOT(8) TIDEPOOL_DOT(9) TIDEPOOL_DOT(10) TIDEPOOL_DOT(11)
                  TIDEPOOL_DOT(12) TIDEPOOL_DOT(13) TIDEPOOL_DOT(14)
                      TIDEPOOL_DOT(15) TIDEPOOL_DOT(16) TIDEPOOL_DOT(17)
                          TIDEPOOL_DOT(18) TIDEPOOL_DOT(19) TIDEPOOL_DOT(20)
                              TIDEPOOL_DOT(21) TIDEPOOL_DOT(22)
                                  TIDEPOOL_DOT(23) "dec %0\n"
                                                   "jnz 1b\n"
      : "+r"(rounds)
      :
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
        "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}
#undef TIDEPOOL_DOT
#else
void RunDots(int64_t /*rounds*/) {}
#endif

void ReadMemory(const std::byte* data, int64_t bytes, ThreadPool& pool) {
  pool.For(bytes / kPartBytes, 0,
           [&](int64_t begin, int64_t end, int32_t /*thread*/) {
             Touch(data + begin * kPartBytes, (end - begin) * kPartBytes);
           });
}

}  // namespace tidepool::engine
