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

// Every size is positive and bounded (see config.cc), heads divide evenly, and
// every product of two sizes that names a tensor fits in int64_t.
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

}  // namespace tidepool::model
