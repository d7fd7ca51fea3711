// How much memory a worker needs, and whether it has it: plain arithmetic,
// shown to whoever has to change a number.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "controller/reconcilers/model_spec.h"
#include "dataplane/base/status.h"

namespace tidepool::reconcilers {

// What a model takes.
struct ModelFigures {
  uint64_t file_bytes = 0;  // to download; the others are once loaded
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes_per_token = 0;
  uint64_t context_tokens = 0;  // the most that it can attend to

  bool operator==(const ModelFigures&) const = default;
};

// From config.json and the size of the weights' files. `dtype` is what the
// engine computes in: "auto" (as stored), "float32" or "bfloat16".
// Errors: kInvalidArgument naming what is missing or out of bounds.
StatusOr<ModelFigures> FiguresOf(const nlohmann::json& config,
                                 uint64_t weight_file_bytes,
                                 const std::string& dtype);

// The demo model that is in the image.
ModelFigures DemoFigures(const std::string& dtype);

struct MemoryInputs {
  // Nullopt: not known, for the reason beside it; then only what is stated is
  // passed on.
  std::optional<ModelFigures> model;
  std::string why_unknown;
  uint64_t max_num_seqs = 256;
  std::optional<uint64_t> max_model_len;  // stated
  std::optional<uint64_t> kv_bytes;       // stated: kvCacheMemory
  uint64_t limit_bytes = 0;  // stated: resources.limits.memory; 0: not
  std::optional<uint64_t> cache_bytes_max;  // of what is downloaded
};

struct MemoryPlan {
  // What the container requests and is limited to; 0: not derived.
  uint64_t memory_bytes = 0;
  uint64_t kv_bytes = 0;  // for --kv-cache-memory; 0: the worker's default
  std::string arithmetic;
};

// Beyond weights and KV: activations, tokenizer, buffers, the program itself.
inline constexpr uint64_t kMarginBytes = 512ull << 20;
inline constexpr uint64_t kMarginWeightDivisor = 10;
// Without a stated size, KV gets what the sequences can use, at most half as
// much as the weights, but not less than this.
inline constexpr uint64_t kKvDefaultBytesMin = 256ull << 20;
// The least context that is worth serving when none is stated.
inline constexpr uint64_t kContextTokensMin = 2048;

// Errors: kResourceExhausted, with the arithmetic, if it cannot fit;
// kInvalidArgument if more context is stated than the model has.
StatusOr<MemoryPlan> PlanMemory(const MemoryInputs& inputs);

}  // namespace tidepool::reconcilers
