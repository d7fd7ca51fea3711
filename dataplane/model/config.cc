#include "dataplane/model/config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "dataplane/model/file_io.h"
#include "dataplane/model/strict_json.h"

namespace tidepool::model {
namespace {

using nlohmann::json;

// Far above any published model, and small enough that no product below
// overflows: the embedding has at most 2^44 elements, a layer fewer than 2^45,
// all of them together fewer than 2^56.
constexpr int64_t kMaxVocabSize = int64_t{1} << 24;
constexpr int64_t kMaxHiddenSize = int64_t{1} << 20;
constexpr int64_t kMaxIntermediateSize = int64_t{1} << 22;
constexpr int64_t kMaxLayers = 1 << 10;
constexpr int64_t kMaxHeads = 1 << 12;
constexpr int64_t kMaxHeadDim = 1 << 10;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr double kMaxRopeTheta = 1e15;
constexpr double kMaxRopeFactor = 1e6;
constexpr size_t kMaxEosTokens = 256;

struct Family {
  Architecture architecture;
  std::string_view model_type;
  std::string_view class_name;
};
constexpr Family kFamilies[] = {
    {Architecture::kLlama, "llama", "LlamaForCausalLM"},
    {Architecture::kQwen2, "qwen2", "Qwen2ForCausalLM"},
    {Architecture::kQwen3, "qwen3", "Qwen3ForCausalLM"}};

StatusOr<Architecture> FamilyByClass(const json& architectures) {
  if (!architectures.is_array() || architectures.size() != 1 ||
      !architectures[0].is_string()) {
    return InvalidArgument("architectures: expected a list of one name");
  }
  const auto& name = architectures[0].get_ref<const std::string&>();
  const auto* family = std::ranges::find(kFamilies, name, &Family::class_name);
  if (family == std::end(kFamilies)) {
    return Unimplemented(
        "architectures: {:?} is not supported (LlamaForCausalLM, "
        "Qwen2ForCausalLM and Qwen3ForCausalLM are)",
        name);
  }
  return family->architecture;
}

StatusOr<Architecture> ParseArchitecture(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto model_type, fields.OptionalString("model_type"));
  std::optional<Architecture> by_type;
  if (model_type.has_value()) {
    const auto* family =
        std::ranges::find(kFamilies, *model_type, &Family::model_type);
    if (family == std::end(kFamilies)) {
      return Unimplemented(
          "model_type: {:?} is not supported (llama, qwen2 and qwen3 are)",
          *model_type);
    }
    by_type = family->architecture;
  }
  const json* architectures = fields.Find("architectures");
  if (architectures == nullptr) {
    if (by_type.has_value()) return *by_type;
    return InvalidArgument("architectures: missing, and so is model_type");
  }
  ASSIGN_OR_RETURN(const Architecture by_class, FamilyByClass(*architectures));
  if (by_type.has_value() && *by_type != by_class) {
    return InvalidArgument("architectures: {} contradicts model_type {:?}",
                           architectures->dump(), *model_type);
  }
  return by_class;
}

Status RefuseQuantisationAndExperts(const JsonFields& fields) {
  for (const char* name : {"quantization_config", "compression_config"}) {
    if (fields.Has(name)) {
      return Unimplemented("{}: quantised weights are not supported", name);
    }
  }
  for (const char* name :
       {"num_experts", "num_local_experts", "n_routed_experts",
        "num_experts_per_tok", "moe_intermediate_size"}) {
    const json* value = fields.Find(name);
    if (value != nullptr && *value != 0)
      return Unimplemented("{}: mixtures of experts are not supported", name);
  }
  return OkStatus();
}

// A window matters only if some layer uses it: Qwen writes a size beside
// `use_sliding_window: false`, or starts it beyond the last layer.
Status RefuseSlidingWindow(const JsonFields& fields,
                           const ModelConfig& config) {
  if (const json* types = fields.Find("layer_types"); types != nullptr) {
    if (!types->is_array())
      return InvalidArgument("layer_types: expected a list");
    for (const json& type : *types) {
      if (type != "full_attention") {
        return Unimplemented("layer_types: {} is not supported", type.dump());
      }
    }
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const auto window,
                   fields.OptionalInt("sliding_window", 0,
                                      std::numeric_limits<int64_t>::max()));
  ASSIGN_OR_RETURN(const auto use, fields.OptionalBool("use_sliding_window"));
  ASSIGN_OR_RETURN(const auto first_layer,
                   fields.OptionalInt("max_window_layers", 0,
                                      std::numeric_limits<int64_t>::max()));
  // Only Qwen's models take the window as off unless told otherwise.
  const bool used = use.value_or(config.architecture == Architecture::kLlama);
  if (!window.has_value() || *window == 0 || !used) return OkStatus();
  if (first_layer.has_value() && *first_layer >= config.num_layers)
    return OkStatus();
  return Unimplemented("sliding_window: sliding windows are not supported");
}

Status RefuseOtherArithmetic(const JsonFields& fields) {
  for (const char* name : {"hidden_act", "hidden_activation"}) {
    ASSIGN_OR_RETURN(const auto activation, fields.OptionalString(name));
    if (activation.has_value() && *activation != "silu") {
      return Unimplemented("{}: {:?} is not supported (silu is)", name,
                           *activation);
    }
  }
  ASSIGN_OR_RETURN(const auto rotary,
                   fields.OptionalNumber("partial_rotary_factor", 0, 1));
  if (rotary.has_value() && *rotary != 1) {
    return Unimplemented("partial_rotary_factor: {} is not supported (1 is)",
                         *rotary);
  }
  return OkStatus();
}

Status ParseSizes(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.vocab_size,
                   fields.Int("vocab_size", 1, kMaxVocabSize));
  ASSIGN_OR_RETURN(config.hidden_size,
                   fields.Int("hidden_size", 1, kMaxHiddenSize));
  ASSIGN_OR_RETURN(config.intermediate_size,
                   fields.Int("intermediate_size", 1, kMaxIntermediateSize));
  ASSIGN_OR_RETURN(config.num_layers,
                   fields.Int("num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.max_position_embeddings,
                   fields.Int("max_position_embeddings", 1, kMaxPositions));
  ASSIGN_OR_RETURN(const auto epsilon,
                   fields.OptionalNumber("rms_norm_eps", 0, 1));
  config.rms_norm_eps = epsilon.value_or(1e-6);
  return OkStatus();
}

Status ParseHeads(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.num_heads,
                   fields.Int("num_attention_heads", 1, kMaxHeads));
  ASSIGN_OR_RETURN(const auto kv_heads,
                   fields.OptionalInt("num_key_value_heads", 1, kMaxHeads));
  config.num_kv_heads = kv_heads.value_or(config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0) {
    return InvalidArgument(
        "num_key_value_heads: {} does not divide num_attention_heads {}",
        config.num_kv_heads, config.num_heads);
  }
  ASSIGN_OR_RETURN(const auto head_dim,
                   fields.OptionalInt("head_dim", 2, kMaxHeadDim));
  if (head_dim.has_value()) {
    config.head_dim = *head_dim;
  } else if (config.architecture == Architecture::kQwen3) {
    config.head_dim = 128;  // the default of the reference implementation
  } else if (config.hidden_size % config.num_heads != 0) {
    return InvalidArgument(
        "head_dim: missing, and num_attention_heads {} does not divide "
        "hidden_size {}",
        config.num_heads, config.hidden_size);
  } else {
    config.head_dim = config.hidden_size / config.num_heads;
  }
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim) {
    return InvalidArgument("head_dim: {} is odd or over {}", config.head_dim,
                           kMaxHeadDim);
  }
  return OkStatus();
}

Status ParseBiases(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto tied, fields.OptionalBool("tie_word_embeddings"));
  ASSIGN_OR_RETURN(const auto attention, fields.OptionalBool("attention_bias"));
  ASSIGN_OR_RETURN(const auto mlp, fields.OptionalBool("mlp_bias"));
  const bool is_qwen2 = config.architecture == Architecture::kQwen2;
  config.tie_word_embeddings = tied.value_or(false);
  // Qwen2 has biases on q, k and v whatever it says.
  config.attention_qkv_bias = is_qwen2 || attention.value_or(false);
  config.attention_output_bias = !is_qwen2 && attention.value_or(false);
  config.mlp_bias =
      config.architecture == Architecture::kLlama && mlp.value_or(false);
  config.qk_norm = config.architecture == Architecture::kQwen3;
  return OkStatus();
}

StatusOr<std::string> RopeType(const JsonFields& rope) {
  ASSIGN_OR_RETURN(const auto name, rope.OptionalString("rope_type"));
  ASSIGN_OR_RETURN(const auto old_name, rope.OptionalString("type"));
  if (name.has_value() && old_name.has_value() && *name != *old_name) {
    return InvalidArgument("{}: {:?} contradicts type {:?}",
                           rope.PathOf("rope_type"), *name, *old_name);
  }
  return name.value_or(old_name.value_or("default"));
}

StatusOr<double> Required(const JsonFields& fields, std::string_view name,
                          double min, double max) {
  ASSIGN_OR_RETURN(const auto value, fields.OptionalNumber(name, min, max));
  if (!value.has_value())
    return InvalidArgument("{}: missing", fields.PathOf(name));
  return *value;
}

StatusOr<Llama3RopeScaling> ParseLlama3Scaling(const JsonFields& rope) {
  Llama3RopeScaling scaling;
  ASSIGN_OR_RETURN(scaling.factor, Required(rope, "factor", 1, kMaxRopeFactor));
  ASSIGN_OR_RETURN(scaling.low_freq_factor,
                   Required(rope, "low_freq_factor", 1e-6, kMaxRopeFactor));
  ASSIGN_OR_RETURN(scaling.high_freq_factor,
                   Required(rope, "high_freq_factor", 1e-6, kMaxRopeFactor));
  ASSIGN_OR_RETURN(
      scaling.original_max_position_embeddings,
      rope.Int("original_max_position_embeddings", 1, kMaxPositions));
  if (scaling.low_freq_factor >= scaling.high_freq_factor) {
    return InvalidArgument("{}: {} is not below high_freq_factor {}",
                           rope.PathOf("low_freq_factor"),
                           scaling.low_freq_factor, scaling.high_freq_factor);
  }
  return scaling;
}

// `rope_scaling` of older files or `rope_parameters` of newer ones.
Status ParseRopeObject(const JsonFields& fields, std::string_view name,
                       ModelConfig& config, std::optional<double>& theta) {
  const json* value = fields.Find(name);
  if (value == nullptr) return OkStatus();
  if (!value->is_object())
    return InvalidArgument("{}: expected an object", fields.PathOf(name));
  const JsonFields rope(*value, fields.PathOf(name) + ".");
  for (const auto& [key, member] : value->items()) {
    if (member.is_object()) {
      return Unimplemented("{}: parameters per layer type are not supported",
                           rope.PathOf(key));
    }
  }
  RETURN_IF_ERROR(RefuseOtherArithmetic(rope));
  ASSIGN_OR_RETURN(const auto own_theta,
                   rope.OptionalNumber("rope_theta", 1, kMaxRopeTheta));
  if (own_theta.has_value()) {
    if (theta.has_value() && *theta != *own_theta) {
      return InvalidArgument("{}: {} contradicts rope_theta {}",
                             rope.PathOf("rope_theta"), *own_theta, *theta);
    }
    theta = own_theta;
  }
  ASSIGN_OR_RETURN(const std::string type, RopeType(rope));
  if (type == "default") return OkStatus();
  if (type != "llama3") {
    return Unimplemented("{}: {:?} is not supported (default and llama3 are)",
                         rope.PathOf("rope_type"), type);
  }
  ASSIGN_OR_RETURN(config.rope_scaling, ParseLlama3Scaling(rope));
  return OkStatus();
}

Status ParseRope(const JsonFields& fields, ModelConfig& config) {
  if (fields.Has("rope_scaling") && fields.Has("rope_parameters") &&
      *fields.Find("rope_scaling") != *fields.Find("rope_parameters")) {
    return InvalidArgument("rope_scaling: contradicts rope_parameters");
  }
  ASSIGN_OR_RETURN(std::optional<double> theta,
                   fields.OptionalNumber("rope_theta", 1, kMaxRopeTheta));
  RETURN_IF_ERROR(ParseRopeObject(fields, "rope_scaling", config, theta));
  RETURN_IF_ERROR(ParseRopeObject(fields, "rope_parameters", config, theta));
  config.rope_theta = theta.value_or(10000);
  return OkStatus();
}

Status ParseDType(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto name, fields.OptionalString("dtype"));
  ASSIGN_OR_RETURN(const auto old_name, fields.OptionalString("torch_dtype"));
  if (name.has_value() && old_name.has_value() && *name != *old_name) {
    return InvalidArgument("dtype: {:?} contradicts torch_dtype {:?}", *name,
                           *old_name);
  }
  const std::string text = name.value_or(old_name.value_or("float32"));
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    if (text == NameOf(dtype)) {
      config.dtype = dtype;
      return OkStatus();
    }
  }
  return Unimplemented(
      "{}: {:?} is not supported (float32, float16 and "
      "bfloat16 are)",
      name.has_value() ? "dtype" : "torch_dtype", text);
}

// One id, a list of ids, or nothing.
StatusOr<std::vector<int32_t>> ParseTokenIds(const JsonFields& fields,
                                             std::string_view name,
                                             int64_t vocab_size) {
  std::vector<int32_t> ids;
  const json* value = fields.Find(name);
  if (value == nullptr) return ids;
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > kMaxEosTokens) {
    return InvalidArgument("{}: {} ids, more than {}", fields.PathOf(name),
                           list.size(), kMaxEosTokens);
  }
  for (const json& element : list) {
    ASSIGN_OR_RETURN(const int64_t id, IntegerOf(element, fields.PathOf(name),
                                                 0, vocab_size - 1));
    if (std::ranges::find(ids, id) == ids.end())
      ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

}  // namespace

StatusOr<ModelConfig> ParseModelConfig(std::string_view text) {
  ASSIGN_OR_RETURN(const json document, ParseStrictJson(text));
  if (!document.is_object())
    return InvalidArgument("expected a JSON object, found {}",
                           document.type_name());
  const JsonFields fields(document);
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, ParseArchitecture(fields));
  RETURN_IF_ERROR(RefuseQuantisationAndExperts(fields));
  RETURN_IF_ERROR(RefuseOtherArithmetic(fields));
  RETURN_IF_ERROR(ParseSizes(fields, config));
  RETURN_IF_ERROR(RefuseSlidingWindow(fields, config));
  RETURN_IF_ERROR(ParseHeads(fields, config));
  RETURN_IF_ERROR(ParseBiases(fields, config));
  RETURN_IF_ERROR(ParseRope(fields, config));
  RETURN_IF_ERROR(ParseDType(fields, config));
  ASSIGN_OR_RETURN(const auto bos, fields.OptionalInt("bos_token_id", 0,
                                                      config.vocab_size - 1));
  if (bos.has_value()) config.bos_token_id = static_cast<int32_t>(*bos);
  ASSIGN_OR_RETURN(config.eos_token_ids,
                   ParseTokenIds(fields, "eos_token_id", config.vocab_size));
  return config;
}

StatusOr<GenerationDefaults> ParseGenerationDefaults(std::string_view text) {
  ASSIGN_OR_RETURN(const json document, ParseStrictJson(text));
  if (!document.is_object())
    return InvalidArgument("expected a JSON object, found {}",
                           document.type_name());
  const JsonFields fields(document);
  GenerationDefaults defaults;
  ASSIGN_OR_RETURN(defaults.do_sample, fields.OptionalBool("do_sample"));
  ASSIGN_OR_RETURN(defaults.temperature,
                   fields.OptionalNumber("temperature", 0, 100));
  ASSIGN_OR_RETURN(defaults.top_p, fields.OptionalNumber("top_p", 1e-9, 1));
  ASSIGN_OR_RETURN(defaults.top_k,
                   fields.OptionalInt("top_k", -1, kMaxVocabSize));
  if (defaults.top_k == -1) defaults.top_k = 0;  // both mean no limit
  ASSIGN_OR_RETURN(defaults.min_p, fields.OptionalNumber("min_p", 0, 1));
  ASSIGN_OR_RETURN(defaults.repetition_penalty,
                   fields.OptionalNumber("repetition_penalty", 1e-3, 1e3));
  ASSIGN_OR_RETURN(defaults.eos_token_ids,
                   ParseTokenIds(fields, "eos_token_id", kMaxVocabSize));
  return defaults;
}

StatusOr<ModelDescription> LoadModelDescription(const std::string& directory) {
  ModelDescription description;
  const std::string config_path = directory + "/config.json";
  ASSIGN_OR_RETURN(const std::string config_text, ReadSmallFile(config_path));
  StatusOr<ModelConfig> config = ParseModelConfig(config_text);
  if (!config.ok()) return Annotate(config.status(), config_path);
  description.config = *std::move(config);

  const std::string generation_path = directory + "/generation_config.json";
  const StatusOr<std::string> generation_text = ReadSmallFile(generation_path);
  if (generation_text.status().code() == Code::kNotFound) return description;
  RETURN_IF_ERROR(generation_text.status());
  StatusOr<GenerationDefaults> generation =
      ParseGenerationDefaults(*generation_text);
  if (!generation.ok()) return Annotate(generation.status(), generation_path);
  description.generation = *std::move(generation);

  std::vector<int32_t>& ids = description.config.eos_token_ids;
  for (const int32_t id : description.generation.eos_token_ids) {
    if (id >= description.config.vocab_size) {
      return InvalidArgument(
          "{}: eos_token_id: {} is outside the vocabulary "
          "of {}",
          generation_path, id, description.config.vocab_size);
    }
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return description;
}

std::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return "unknown";
}

int64_t BytesOf(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

}  // namespace tidepool::model
