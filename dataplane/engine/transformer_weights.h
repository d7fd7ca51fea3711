// All weights of a model, packed for the kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/engine/numerics.h"
#include "dataplane/engine/packed_weights.h"
#include "dataplane/engine/thread_pool.h"
#include "dataplane/model/config.h"
#include "dataplane/model/weights.h"

namespace tidepool::engine::internal {

// Bytes of the source's tensors packed so far, and of all.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

struct Projection {
  PackedMatrix matrix;
  std::vector<float> bias;  // by output, padded to whole groups; may be empty
};

struct LayerWeights {
  std::vector<float> attention_norm, mlp_norm;
  std::vector<float> q_norm, k_norm;  // empty without QK norm
  Projection qkv;                     // outputs: q, then k, then v
  Projection attention_output;
  Projection gate_up;  // see Placement
  Projection down;
};

struct TransformerWeights {
  PackedMatrix embedding;  // [vocab, hidden], also the tied output matrix
  PackedMatrix lm_head;    // empty if tied
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;

  const PackedMatrix& output_matrix() const {
    return lm_head.groups() == 0 ? embedding : lm_head;
  }
};

// Reads every tensor once; `source` is not needed afterwards. `progress` may
// be empty. Errors: those of WeightSource::Get; kResourceExhausted.
StatusOr<TransformerWeights> LoadTransformerWeights(
    const model::ModelConfig& config, ComputeMode mode,
    model::WeightSource& source, ThreadPool& pool,
    const LoadProgress& progress);

}  // namespace tidepool::engine::internal
