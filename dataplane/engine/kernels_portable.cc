// For every processor.
#include "dataplane/engine/attention_impl.h"
#include "dataplane/engine/gemm_impl.h"
#include "dataplane/engine/kernels.h"
#include "dataplane/engine/ops_impl.h"
#include "dataplane/engine/simd_modes.h"
#include "dataplane/engine/simd_portable.h"

namespace tidepool::engine::internal {
namespace {

template <typename M>
constexpr KernelTable kTable = {.gemm = Gemm<M>,
                                .rms_norm = RmsNorm<M>,
                                .qkv = Qkv<M>,
                                .attention = Attention<M>,
                                .exp2 = Exp2Array<M>};

}  // namespace

const KernelTable& PortableFloatKernels() {
  return kTable<FloatMode<Portable>>;
}
const KernelTable& PortableBf16Kernels() { return kTable<Bf16Mode<Portable>>; }

}  // namespace tidepool::engine::internal
