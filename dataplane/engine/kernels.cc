#include "dataplane/engine/kernels.h"

#include <algorithm>

#include "dataplane/base/check.h"
#include "dataplane/engine/numerics.h"

namespace tidepool::engine::internal {

int32_t AttentionRowsMax(int32_t group) {
  // Enough to make up for packing keys and values, and a cache-sized scratch.
  return std::max(group, 256 / group * group);
}

int64_t AttentionScratchBytes(int32_t group, int32_t head_dim) {
  const int64_t rows = AttentionRowsMax(group);
  const int64_t dim =
      (int64_t{head_dim} + kVectorFloats - 1) / kVectorFloats * kVectorFloats;
  // In units and floats, of float32 mode, where units hold least; see
  // attention_impl.h.
  const int64_t elements = rows * dim +                  // queries
                           2 * dim * kAttentionBlock +   // keys, values
                           dim +                         // tail
                           2 * rows * kAttentionBlock +  // weights, scores
                           rows * dim +                  // sums
                           2 * rows;                     // maxima, totals
  constexpr int64_t kParts = 9;
  return elements * int64_t{sizeof(Unit)} + kParts * 64;
}

const KernelTable& KernelsFor(ComputeMode mode, Isa isa) {
  const bool is_float = mode == ComputeMode::kFloat32;
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512Bf16:
      return is_float ? Avx512FloatKernels() : Avx512Bf16Kernels();
    case Isa::kAvx2:
      return is_float ? Avx2FloatKernels() : Avx2Bf16Kernels();
#endif
    default:
      CHECK(isa == Isa::kPortable);
      return is_float ? PortableFloatKernels() : PortableBf16Kernels();
  }
}

}  // namespace tidepool::engine::internal
