// Which arithmetic a CPU engine computes in, and its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/engine/kv_layout.h"
#include "dataplane/model/config.h"

namespace tidepool::engine {

// What weights, activations and KV are stored in; sums are float32 in both.
enum class ComputeMode { kFloat32, kBFloat16 };

// An instruction set the kernels are written for.
enum class Isa {
  kPortable,    // plain C++, no fused multiply-add
  kAvx2,        // AVX2 with FMA
  kAvx512Bf16,  // AVX-512 F, BW, DQ, VL and BF16
};

std::string_view NameOf(ComputeMode mode);  // "float32", "bfloat16"
std::string_view NameOf(Isa isa);           // "portable", "avx2", "avx512bf16"

// Errors: kInvalidArgument naming the known ones.
StatusOr<ComputeMode> ParseComputeMode(std::string_view name);
StatusOr<Isa> ParseIsa(std::string_view name);

// Those that this processor and this build have, the fastest last.
const std::vector<Isa>& SupportedIsas();

// `wanted`, or the fastest supported one.
// Errors: kFailedPrecondition if this processor lacks it.
StatusOr<Isa> ResolveIsa(std::optional<Isa> wanted);

// Names the arithmetic, e.g. "cpu-bf16-avx512bf16-v1": two engines of equal
// ids compute bitwise equal KV and logits from equal weights, whatever their
// threads, batches, chunks and page sizes. The version counts changes of the
// order of operations or of rounding points.
std::string NumericsId(ComputeMode mode, Isa isa);

// `page_tokens` is 16, 32 or 64.
KvLayout KvLayoutFor(const model::ModelConfig& config, ComputeMode mode,
                     int32_t page_tokens);

}  // namespace tidepool::engine
