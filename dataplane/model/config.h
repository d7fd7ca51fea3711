// What a Hugging Face `config.json` says about a decoder-only transformer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"

namespace tidepool::model {

enum class Architecture { kLlama, kQwen2, kQwen3 };

// The dtype weights are stored in.
enum class DType { kFloat32, kFloat16, kBFloat16 };

// Llama 3's rescaling of rotary frequencies ("rope_type": "llama3").
struct Llama3RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
};

// Every size is positive and bounded (see config.cc), so that the elements of
// all tensors together fit in int64_t; num_heads is a multiple of num_kv_heads
// and head_dim is even.
struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  std::optional<Llama3RopeScaling> rope_scaling;
  bool tie_word_embeddings = false;
  bool attention_qkv_bias = false;     // Qwen2 always, Llama by attention_bias
  bool attention_output_bias = false;  // Llama with attention_bias
  bool mlp_bias = false;
  bool qk_norm = false;  // Qwen3: RMS norm of each q and k head before RoPE
  DType dtype = DType::kBFloat16;
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // also from generation_config.json

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
};

// Errors: kInvalidArgument for malformed or impossible values, kUnimplemented
// for what this build does not support (sliding windows, other rope types,
// quantisation, other activations…); the message names the field.
StatusOr<ModelConfig> ParseModelConfig(std::string_view json);

// Sampling parameters that a model's `generation_config.json` recommends;
// absent fields leave the server's own defaults.
struct GenerationDefaults {
  std::optional<bool> do_sample;  // false asks for greedy decoding
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;  // 0 considers the whole vocabulary
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::vector<int32_t> eos_token_ids;
};

// Errors: kInvalidArgument naming the field.
StatusOr<GenerationDefaults> ParseGenerationDefaults(std::string_view json);

// What a model folder says about itself, weights and tokenizer aside.
struct ModelDescription {
  ModelConfig config;  // eos_token_ids: those of both files, each once
  GenerationDefaults generation;
};

// Reads `config.json` and, if present, `generation_config.json`.
// Errors: those of the parsers with the file's name in front; kNotFound.
StatusOr<ModelDescription> LoadModelDescription(const std::string& directory);

// A tensor under its Hugging Face name, with its row-major shape.
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;

  bool operator==(const TensorSpec&) const = default;
};

// Every tensor that a model of this configuration needs, in the order of the
// forward pass. Projections are [out, in]; `lm_head.weight` is listed only if
// the embedding is not tied.
std::vector<TensorSpec> TensorsOf(const ModelConfig& config);

std::string_view NameOf(DType dtype);  // "float32", "float16", "bfloat16"
int64_t BytesOf(DType dtype);          // of one element

}  // namespace tidepool::model
