// The inner loops of a transformer, once per instruction set and compute mode.
//
// All of them are exact functions of their inputs: every output is one chain
// of operations whose order does not depend on how many rows are computed
// together, on where KV pages lie, or on how work is cut for threads.
//
// Only plain types here: the files that implement a table are compiled for
// instruction sets that the running processor may lack, so they must not
// instantiate inline functions that the linker could hand to other files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidepool::engine {
enum class ComputeMode;
enum class Isa;
}  // namespace tidepool::engine

namespace tidepool::engine::internal {

// Four bytes: one float, or two consecutive bfloat16 (the first in the low
// half). Dot products advance by one unit.
using Unit = uint32_t;

// Outputs of a matrix are stored in groups of 64, see PackedMatrix.
inline constexpr int32_t kGroupOutputs = 64;
// Positions that attention handles between two corrections of its running
// maximum, aligned to absolute positions; a multiple of every page size.
inline constexpr int32_t kAttentionBlock = 64;
// Queries and values of a head are padded to whole vectors.
inline constexpr int32_t kVectorFloats = 16;
// Rows that one call of `gemm` may compute: its scratch has [this][64] floats.
inline constexpr int32_t kGemmRowsMax = 192;

// What becomes of the product.
enum class Epilogue {
  kStore,   // out = product + bias
  kAdd,     // out = out + (product + bias)
  kSwiGlu,  // groups hold 32 gates, then 32 ups: activation = silu(gate) * up
};

// rows × groups of out = a · weightsᵀ.
struct GemmArgs {
  const Unit* a;  // [rows][a_stride], `units` of each row used
  int64_t a_stride;
  int32_t rows;         // in [1, kGemmRowsMax]
  const Unit* weights;  // [groups][units][64]
  int32_t units;
  int32_t group_begin, group_end;
  Epilogue epilogue;
  const float* bias;  // [groups][64], or null
  // kStore and kAdd: [rows][out_stride] floats, `outputs` of each row written.
  // kSwiGlu: [rows][out_stride] activations, outputs / 2 of each row written.
  void* out;
  int64_t out_stride;
  int64_t outputs;
  float* scratch;  // [rows][64]
};

struct RmsNormArgs {
  const float* x;  // [rows][x_stride]
  int64_t x_stride;
  const float* weight;  // [size]
  void* out;            // [rows][out_stride] activations
  int64_t out_stride;
  int32_t rows, size;
  float epsilon;
};

// Takes one token's projections apart: norms, rotates, scales, stores.
struct QkvArgs {
  float* qkv;  // [heads + 2 * kv_heads][head_dim]; overwritten
  int32_t heads, kv_heads, head_dim;
  const float* q_norm;  // [head_dim], or null
  const float* k_norm;
  float epsilon;
  const float* cosines;  // [head_dim / 2] of the token's position
  const float* sines;
  float q_scale;
  void* q;      // out: [heads][head_dim] activations
  void* slice;  // out: the token's page, see KvLayout
  int32_t page_tokens, token_in_page;
};

// Queries of consecutive positions of one sequence against its KV, for the
// query heads that share one KV head.
struct AttentionArgs {
  // Scaled by log2(e) / sqrt(head_dim): [tokens][stride] activations, of which
  // the `group` heads of this KV head are [group][head_dim].
  const void* q;
  void* out;  // like q
  int64_t stride;
  int32_t tokens, position;  // of the first token
  int32_t group, head_dim;
  const std::byte* layer;  // slice of page 0
  int64_t slice_bytes;
  const int32_t* pages;
  int32_t page_tokens, kv_head, kv_heads;
  std::byte* scratch;  // AttentionScratchBytes
};

// The most (tokens × group) rows that one call of `attention` takes.
int32_t AttentionRowsMax(int32_t group);
int64_t AttentionScratchBytes(int32_t group, int32_t head_dim);

// Activations are floats or bfloat16, as the mode says.
struct KernelTable {
  void (*gemm)(const GemmArgs&);
  void (*rms_norm)(const RmsNormArgs&);
  void (*qkv)(const QkvArgs&);
  void (*attention)(const AttentionArgs&);
  void (*exp2)(const float* x, float* y, int32_t count);  // for tests
};

// `isa` must be supported.
const KernelTable& KernelsFor(ComputeMode mode, Isa isa);

// Each pair is defined in its own file, for that instruction set.
const KernelTable& PortableFloatKernels();
const KernelTable& PortableBf16Kernels();
#if defined(__x86_64__)
const KernelTable& Avx2FloatKernels();
const KernelTable& Avx2Bf16Kernels();
const KernelTable& Avx512FloatKernels();
const KernelTable& Avx512Bf16Kernels();
// Whether VDPBF16PS adds the odd product, then the even one, and rounds to
// nearest even after each. Needs AVX-512 BF16.
bool Avx512DotRoundsAsDocumented();
#endif

}  // namespace tidepool::engine::internal
