// Compiled for AVX2 and FMA; entered only on processors that have it.
#include "dataplane/engine/attention_impl.h"
#include "dataplane/engine/gemm_impl.h"
#include "dataplane/engine/kernels.h"
#include "dataplane/engine/ops_impl.h"
#include "dataplane/engine/simd_avx2.h"
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

const KernelTable& Avx2FloatKernels() { return kTable<FloatMode<Avx2>>; }
const KernelTable& Avx2Bf16Kernels() { return kTable<Bf16Mode<Avx2>>; }

}  // namespace tidepool::engine::internal
