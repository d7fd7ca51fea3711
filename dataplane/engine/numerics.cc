#include "dataplane/engine/numerics.h"

#include <algorithm>

#include "dataplane/engine/kernels.h"

namespace tidepool::engine {
namespace {

// Bumped whenever a kernel adds in another order or rounds elsewhere.
constexpr int kVersion = 1;

std::vector<Isa> DetectIsas() {
  std::vector<Isa> isas = {Isa::kPortable};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    return isas;
  isas.push_back(Isa::kAvx2);
  const bool has_avx512 = __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bf16");
  // Vendors could round the dot product differently; one that does would
  // need a numerics id of its own.
  if (has_avx512 && internal::Avx512DotRoundsAsDocumented())
    isas.push_back(Isa::kAvx512Bf16);
#endif
  return isas;
}

}  // namespace

std::string_view NameOf(ComputeMode mode) {
  return mode == ComputeMode::kFloat32 ? "float32" : "bfloat16";
}

std::string_view NameOf(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
  }
  return "unknown";
}

StatusOr<ComputeMode> ParseComputeMode(std::string_view name) {
  for (const auto mode : {ComputeMode::kFloat32, ComputeMode::kBFloat16}) {
    if (name == NameOf(mode)) return mode;
  }
  return InvalidArgument("compute mode {:?} is not float32 or bfloat16", name);
}

StatusOr<Isa> ParseIsa(std::string_view name) {
  for (const auto isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512Bf16}) {
    if (name == NameOf(isa)) return isa;
  }
  return InvalidArgument(
      "instruction set {:?} is not portable, avx2 or avx512bf16", name);
}

const std::vector<Isa>& SupportedIsas() {
  static const std::vector<Isa> isas = DetectIsas();
  return isas;
}

StatusOr<Isa> ResolveIsa(std::optional<Isa> wanted) {
  const std::vector<Isa>& supported = SupportedIsas();
  if (!wanted.has_value()) return supported.back();
  if (std::ranges::find(supported, *wanted) == supported.end()) {
    return FailedPrecondition("this processor does not support {}",
                              NameOf(*wanted));
  }
  return *wanted;
}

std::string NumericsId(ComputeMode mode, Isa isa) {
  return fmt::format("cpu-{}-{}-v{}",
                     mode == ComputeMode::kFloat32 ? "f32" : "bf16",
                     NameOf(isa), kVersion);
}

KvLayout KvLayoutFor(const model::ModelConfig& config, ComputeMode mode,
                     int32_t page_tokens) {
  return {.num_layers = static_cast<int32_t>(config.num_layers),
          .num_kv_heads = static_cast<int32_t>(config.num_kv_heads),
          .head_dim = static_cast<int32_t>(config.head_dim),
          .page_tokens = page_tokens,
          .element_bytes = mode == ComputeMode::kFloat32 ? 4 : 2};
}

}  // namespace tidepool::engine
