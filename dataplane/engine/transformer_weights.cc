#include "dataplane/engine/transformer_weights.h"

#include <string>
#include <utility>

#include "dataplane/base/checked_math.h"

namespace tidepool::engine::internal {
namespace {

class Loader {
 public:
  Loader(const model::ModelConfig& config, ComputeMode mode,
         model::WeightSource& source, ThreadPool& pool,
         const LoadProgress& progress)
      : config_(config),
        mode_(mode),
        source_(source),
        pool_(pool),
        progress_(progress) {
    for (const model::TensorSpec& tensor : model::TensorsOf(config)) {
      int64_t bytes = model::BytesOf(config.dtype);
      for (const int64_t size : tensor.shape) bytes *= size;
      total_ += bytes;
    }
  }

  StatusOr<TransformerWeights> Load() {
    TransformerWeights weights;
    const int64_t hidden = config_.hidden_size;
    ASSIGN_OR_RETURN(weights.embedding, LoadMatrix("model.embed_tokens.weight",
                                                   config_.vocab_size, hidden));
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      ASSIGN_OR_RETURN(LayerWeights layer,
                       LoadLayer(fmt::format("model.layers.{}.", i)));
      weights.layers.push_back(std::move(layer));
    }
    ASSIGN_OR_RETURN(weights.final_norm,
                     LoadVector("model.norm.weight", hidden));
    if (!config_.tie_word_embeddings) {
      ASSIGN_OR_RETURN(weights.lm_head, LoadMatrix("lm_head.weight",
                                                   config_.vocab_size, hidden));
    }
    return weights;
  }

 private:
  // A tensor that becomes part of a projection.
  struct Part {
    std::string name;  // without ".weight"
    int64_t outputs;
    Placement placement = Placement::kConsecutive;
    int64_t first_output = 0;
  };

  StatusOr<LayerWeights> LoadLayer(const std::string& prefix) {
    LayerWeights layer;
    const int64_t hidden = config_.hidden_size;
    const int64_t inner = config_.intermediate_size;
    const int64_t q = config_.q_size(), kv = config_.kv_size();
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    ASSIGN_OR_RETURN(layer.attention_norm,
                     LoadVector(prefix + "input_layernorm.weight", hidden));
    ASSIGN_OR_RETURN(
        layer.qkv,
        LoadProjection(
            {{attention + "q_proj", q},
             {attention + "k_proj", kv, Placement::kConsecutive, q},
             {attention + "v_proj", kv, Placement::kConsecutive, q + kv}},
            q + 2 * kv, hidden, config_.attention_qkv_bias));
    if (config_.qk_norm) {
      ASSIGN_OR_RETURN(layer.q_norm, LoadVector(attention + "q_norm.weight",
                                                config_.head_dim));
      ASSIGN_OR_RETURN(layer.k_norm, LoadVector(attention + "k_norm.weight",
                                                config_.head_dim));
    }
    ASSIGN_OR_RETURN(layer.attention_output,
                     LoadProjection({{attention + "o_proj", hidden}}, hidden, q,
                                    config_.attention_output_bias));
    ASSIGN_OR_RETURN(
        layer.mlp_norm,
        LoadVector(prefix + "post_attention_layernorm.weight", hidden));
    ASSIGN_OR_RETURN(
        layer.gate_up,
        LoadProjection({{mlp + "gate_proj", inner, Placement::kGates},
                        {mlp + "up_proj", inner, Placement::kUps}},
                       2 * inner, hidden, config_.mlp_bias));
    ASSIGN_OR_RETURN(
        layer.down, LoadProjection({{mlp + "down_proj", hidden}}, hidden, inner,
                                   config_.mlp_bias));
    return layer;
  }

  StatusOr<Projection> LoadProjection(const std::vector<Part>& parts,
                                      int64_t outputs, int64_t inputs,
                                      bool has_bias) {
    Projection projection;
    ASSIGN_OR_RETURN(projection.matrix,
                     PackedMatrix::Create(mode_, outputs, inputs));
    if (has_bias) {
      projection.bias.resize(static_cast<size_t>(
          int64_t{projection.matrix.groups()} * kGroupOutputs));
    }
    for (const Part& part : parts) {
      RETURN_IF_ERROR(Visit(part.name + ".weight", {part.outputs, inputs},
                            [&](const model::TensorView& tensor) {
                              projection.matrix.Pack(tensor, part.placement,
                                                     part.first_output, pool_);
                            }));
      if (!has_bias) continue;
      RETURN_IF_ERROR(Visit(part.name + ".bias", {part.outputs},
                            [&](const model::TensorView& tensor) {
                              UnpackFloats(tensor, part.placement,
                                           part.first_output,
                                           projection.bias.data());
                            }));
    }
    return projection;
  }

  StatusOr<PackedMatrix> LoadMatrix(const std::string& name, int64_t outputs,
                                    int64_t inputs) {
    ASSIGN_OR_RETURN(PackedMatrix matrix,
                     PackedMatrix::Create(mode_, outputs, inputs));
    RETURN_IF_ERROR(
        Visit(name, {outputs, inputs}, [&](const model::TensorView& tensor) {
          matrix.Pack(tensor, Placement::kConsecutive, 0, pool_);
        }));
    return matrix;
  }

  StatusOr<std::vector<float>> LoadVector(const std::string& name,
                                          int64_t size) {
    std::vector<float> values(static_cast<size_t>(size));
    RETURN_IF_ERROR(Visit(name, {size}, [&](const model::TensorView& tensor) {
      UnpackFloats(tensor, Placement::kConsecutive, 0, values.data());
    }));
    return values;
  }

  template <typename Use>
  Status Visit(const std::string& name, const std::vector<int64_t>& shape,
               Use use) {
    ASSIGN_OR_RETURN(const model::TensorView tensor, source_.Get(name, shape));
    use(tensor);
    done_ += tensor.num_elements() * model::BytesOf(config_.dtype);
    if (progress_) progress_(done_, total_);
    return OkStatus();
  }

  const model::ModelConfig& config_;
  const ComputeMode mode_;
  model::WeightSource& source_;
  ThreadPool& pool_;
  const LoadProgress& progress_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

StatusOr<TransformerWeights> LoadTransformerWeights(
    const model::ModelConfig& config, ComputeMode mode,
    model::WeightSource& source, ThreadPool& pool,
    const LoadProgress& progress) {
  return Loader(config, mode, source, pool, progress).Load();
}

}  // namespace tidepool::engine::internal
