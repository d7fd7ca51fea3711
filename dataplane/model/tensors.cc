#include <string>
#include <utility>
#include <vector>

#include "dataplane/model/config.h"

namespace tidepool::model {
namespace {

class TensorList {
 public:
  void Add(std::string name, std::vector<int64_t> shape) {
    specs_.push_back({std::move(name), std::move(shape)});
  }
  void AddLinear(const std::string& name, int64_t out, int64_t in, bool bias) {
    Add(name + ".weight", {out, in});
    if (bias) Add(name + ".bias", {out});
  }
  std::vector<TensorSpec> Take() { return std::move(specs_); }

 private:
  std::vector<TensorSpec> specs_;
};

void AddLayer(const ModelConfig& config, int64_t layer, TensorList& list) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const int64_t hidden = config.hidden_size;
  list.Add(prefix + "input_layernorm.weight", {hidden});
  list.AddLinear(attention + "q_proj", config.q_size(), hidden,
                 config.attention_qkv_bias);
  list.AddLinear(attention + "k_proj", config.kv_size(), hidden,
                 config.attention_qkv_bias);
  list.AddLinear(attention + "v_proj", config.kv_size(), hidden,
                 config.attention_qkv_bias);
  if (config.qk_norm) {
    list.Add(attention + "q_norm.weight", {config.head_dim});
    list.Add(attention + "k_norm.weight", {config.head_dim});
  }
  list.AddLinear(attention + "o_proj", hidden, config.q_size(),
                 config.attention_output_bias);
  list.Add(prefix + "post_attention_layernorm.weight", {hidden});
  list.AddLinear(mlp + "gate_proj", config.intermediate_size, hidden,
                 config.mlp_bias);
  list.AddLinear(mlp + "up_proj", config.intermediate_size, hidden,
                 config.mlp_bias);
  list.AddLinear(mlp + "down_proj", hidden, config.intermediate_size,
                 config.mlp_bias);
}

}  // namespace

std::vector<TensorSpec> TensorsOf(const ModelConfig& config) {
  TensorList list;
  list.Add("model.embed_tokens.weight",
           {config.vocab_size, config.hidden_size});
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    AddLayer(config, layer, list);
  list.Add("model.norm.weight", {config.hidden_size});
  if (!config.tie_word_embeddings)
    list.Add("lm_head.weight", {config.vocab_size, config.hidden_size});
  return list.Take();
}

}  // namespace tidepool::model
