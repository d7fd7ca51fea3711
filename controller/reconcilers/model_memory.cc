#include "controller/reconcilers/model_memory.h"

#include <algorithm>

#include "controller/kube/json_fields.h"
#include "controller/reconcilers/quantity.h"
#include "dataplane/base/checked_math.h"

namespace tidepool::reconcilers {
namespace {

using nlohmann::json;

// Larger figures belong to no model, and their products stay below 2^64.
constexpr uint64_t kWeightBytesMax = 1ull << 46;
constexpr uint64_t kKvBytesPerTokenMax = 1ull << 30;
constexpr uint64_t kContextTokensMax = 1ull << 26;
// Workers keep KV in pages of up to so many tokens.
constexpr uint64_t kPageTokensMax = 64;

StatusOr<uint64_t> Field(const json& config, const char* name, uint64_t max) {
  const auto found = config.find(name);
  if (found == config.end() || !found->is_number_integer())
    return InvalidArgument("config.json: {} is missing", name);
  const auto value = found->get<int64_t>();
  if (value < 1 || static_cast<uint64_t>(value) > max)
    return InvalidArgument("config.json: {}: {} is not within 1..{}", name,
                           value, max);
  return static_cast<uint64_t>(value);
}

bool Has(const json& config, const char* name) {
  const auto found = config.find(name);
  return found != config.end() && found->is_number_integer();
}

// What the weights are stored as, by the engine's rules.
std::string StoredType(const json& config) {
  for (const char* name : {"dtype", "torch_dtype"})
    if (std::string type = kube::TextAt(config, name); !type.empty())
      return type;
  return "float32";
}

// Numbers kept per token and layer.
StatusOr<uint64_t> KvNumbersPerLayer(const json& config) {
  constexpr uint64_t kMax = 1 << 20;
  if (Has(config, "kv_lora_rank")) {  // multi-head latent attention
    ASSIGN_OR_RETURN(const uint64_t rank, Field(config, "kv_lora_rank", kMax));
    ASSIGN_OR_RETURN(const uint64_t rope,
                     Field(config, "qk_rope_head_dim", kMax));
    return rank + rope;
  }
  ASSIGN_OR_RETURN(const uint64_t heads,
                   Field(config, "num_attention_heads", kMax));
  uint64_t kv_heads = heads;
  if (Has(config, "num_key_value_heads")) {
    ASSIGN_OR_RETURN(kv_heads, Field(config, "num_key_value_heads", kMax));
  }
  uint64_t head_dim = 0;
  if (Has(config, "head_dim")) {
    ASSIGN_OR_RETURN(head_dim, Field(config, "head_dim", kMax));
  } else {
    ASSIGN_OR_RETURN(const uint64_t hidden, Field(config, "hidden_size", kMax));
    head_dim = hidden / heads;
  }
  return 2 * kv_heads * head_dim;
}

uint64_t Margin(const ModelFigures& model) {
  return kMarginBytes + model.weight_bytes / kMarginWeightDivisor;
}

// Of one sequence.
uint64_t KvBytes(const ModelFigures& model, uint64_t tokens) {
  return CeilDiv(tokens, kPageTokensMax) * kPageTokensMax *
         model.kv_bytes_per_token;
}

// What all sequences could use at most.
uint64_t KvUsable(const MemoryInputs& inputs) {
  const uint64_t each =
      KvBytes(*inputs.model,
              inputs.max_model_len.value_or(inputs.model->context_tokens));
  return CheckedMul(inputs.max_num_seqs, each).value_or(UINT64_MAX);
}

// One sequence of the longest stated length.
uint64_t KvNeeded(const MemoryInputs& inputs) {
  return KvBytes(*inputs.model,
                 inputs.max_model_len.value_or(std::min(
                     kContextTokensMin, inputs.model->context_tokens)));
}

std::string Arithmetic(const MemoryInputs& inputs, uint64_t kv_bytes) {
  const ModelFigures& model = *inputs.model;
  const uint64_t margin = Margin(model);
  return fmt::format(
      "weights {} + KV {} ({} bytes a token) + margin {} (512 MiB and a tenth "
      "of the weights) = {}",
      ReadableBytes(model.weight_bytes), ReadableBytes(kv_bytes),
      model.kv_bytes_per_token, ReadableBytes(margin),
      ReadableBytes(model.weight_bytes + kv_bytes + margin));
}

}  // namespace

StatusOr<ModelFigures> FiguresOf(const json& config, uint64_t weight_file_bytes,
                                 const std::string& dtype) {
  if (!config.is_object())
    return InvalidArgument("config.json: is not an object");
  if (weight_file_bytes == 0 || weight_file_bytes > kWeightBytesMax)
    return InvalidArgument("the weights are {} bytes", weight_file_bytes);
  // Models with several parts keep the one that generates text apart.
  const auto text_config = config.find("text_config");
  const json& text = text_config != config.end() && text_config->is_object()
                         ? *text_config
                         : config;
  ASSIGN_OR_RETURN(const uint64_t layers,
                   Field(text, "num_hidden_layers", 4096));
  ASSIGN_OR_RETURN(const uint64_t context,
                   Field(text, "max_position_embeddings", kContextTokensMax));
  ASSIGN_OR_RETURN(const uint64_t numbers, KvNumbersPerLayer(text));

  const bool is_stored_wide = StoredType(config) == "float32";
  const bool is_wide =
      dtype == "float32" || (dtype == "auto" && is_stored_wide);
  ModelFigures figures{
      .file_bytes = weight_file_bytes,
      .weight_bytes = weight_file_bytes,
      .kv_bytes_per_token = layers * numbers * (is_wide ? 4 : 2),
      .context_tokens = context};
  if (is_wide && !is_stored_wide) figures.weight_bytes *= 2;
  if (!is_wide && is_stored_wide) figures.weight_bytes /= 2;
  if (figures.kv_bytes_per_token > kKvBytesPerTokenMax)
    return InvalidArgument("config.json: {} bytes of KV per token",
                           figures.kv_bytes_per_token);
  return figures;
}

ModelFigures DemoFigures(const std::string& dtype) {
  const bool is_wide = dtype == "float32";
  // models/demo: 6 layers, 2 KV heads of 64, 11 MB of bfloat16.
  return {.weight_bytes = (is_wide ? 22ull : 11ull) << 20,
          .kv_bytes_per_token = 6ull * 2 * 2 * 64 * (is_wide ? 4 : 2),
          .context_tokens = 2048};
}

StatusOr<MemoryPlan> PlanMemory(const MemoryInputs& inputs) {
  MemoryPlan plan;
  plan.kv_bytes = inputs.kv_bytes.value_or(0);
  plan.memory_bytes = inputs.limit_bytes;
  if (!inputs.model.has_value()) {
    plan.arithmetic = inputs.why_unknown;
    return plan;
  }
  const ModelFigures& model = *inputs.model;
  if (inputs.max_model_len.value_or(0) > model.context_tokens)
    return InvalidArgument("spec.maxModelLen: {} is more than the model's {}",
                           *inputs.max_model_len, model.context_tokens);
  if (model.file_bytes > inputs.cache_bytes_max.value_or(UINT64_MAX))
    return ResourceExhausted(
        "the model's files are {}, but spec.model.cache holds {}",
        ReadableBytes(model.file_bytes),
        ReadableBytes(*inputs.cache_bytes_max));
  const uint64_t fixed = model.weight_bytes + Margin(model);
  const uint64_t needed = KvNeeded(inputs);
  if (plan.kv_bytes == 0) {
    // A stated limit is there to be used.
    const uint64_t room =
        inputs.limit_bytes > 0
            ? inputs.limit_bytes - std::min(inputs.limit_bytes, fixed)
            : std::max(kKvDefaultBytesMin, model.weight_bytes / 2);
    plan.kv_bytes = std::max(std::min(KvUsable(inputs), room), needed);
  }
  plan.arithmetic = Arithmetic(inputs, plan.kv_bytes);
  if (plan.kv_bytes < needed)
    return ResourceExhausted(
        "kvCacheMemory {} holds no sequence: one takes {} ({} bytes a token)",
        ReadableBytes(plan.kv_bytes), ReadableBytes(needed),
        model.kv_bytes_per_token);
  const auto total = CheckedAdd(fixed, plan.kv_bytes);
  if (!total.has_value())
    return ResourceExhausted("kvCacheMemory {} is beyond any memory",
                             ReadableBytes(plan.kv_bytes));
  if (inputs.limit_bytes > 0 && *total > inputs.limit_bytes)
    return ResourceExhausted(
        "the model does not fit: {}, but "
        "resources.limits.memory is {}",
        plan.arithmetic, ReadableBytes(inputs.limit_bytes));
  // Whole mebibytes read better, and change less.
  if (inputs.limit_bytes == 0)
    plan.memory_bytes = CeilDiv(*total, uint64_t{1} << 20) << 20;
  return plan;
}

}  // namespace tidepool::reconcilers
