// Compiled for AVX-512 BF16; entered only on processors that have it.
#include "dataplane/engine/attention_impl.h"
#include "dataplane/engine/gemm_impl.h"
#include "dataplane/engine/kernels.h"
#include "dataplane/engine/ops_impl.h"
#include "dataplane/engine/simd_avx512.h"
#include "dataplane/engine/simd_modes.h"

namespace tidepool::engine::internal {
namespace {

template <typename M>
constexpr KernelTable kTable = {.gemm = Gemm<M>,
                                .rms_norm = RmsNorm<M>,
                                .qkv = Qkv<M>,
                                .attention = Attention<M>,
                                .exp2 = Exp2Array<M>};

}  // namespace

const KernelTable& Avx512FloatKernels() { return kTable<FloatMode<Avx512>>; }
const KernelTable& Avx512Bf16Kernels() { return kTable<Bf16Mode<Avx512>>; }

bool Avx512DotRoundsAsDocumented() {
  // 2^24 + 1 + 1 is 2^24 if rounded after each product and 2^24 + 2 if summed
  // first; 1 + 2^-24 * (1, then 1 + 2^-7) tells which product comes first.
  const auto dot = [](float sum, uint32_t w, uint32_t a) {
    float lanes[16];
    Avx512::Store(lanes, Avx512::DotBf16(Avx512::Set(sum),
                                         _mm512_set1_epi32(static_cast<int>(w)),
                                         Avx512::Splat(a)));
    return lanes[0];
  };
  constexpr uint32_t kOne = 0x3f80, kMore = 0x3f81;  // 1 and 1 + 2^-7
  constexpr uint32_t kTiny = 0x3380;                 // 2^-24
  const bool rounds_twice =
      dot(0x1p24f, kOne | kOne << 16, kOne | kOne << 16) == 0x1p24f;
  // Odd first: 1 + 2^-24 is a tie that falls to 1, and 1 + 2^-24 (1 + 2^-7)
  // rounds up to 1 + 2^-23. Even first: up, and then a tie that goes up again.
  const bool odd_first =
      dot(1.0f, kMore | kOne << 16, kTiny | kTiny << 16) == 1.0f + 0x1p-23f;
  return rounds_twice && odd_first;
}

}  // namespace tidepool::engine::internal
