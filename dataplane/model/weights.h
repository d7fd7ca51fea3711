// Where a model's tensors come from: safetensors files or a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/digest.h"
#include "dataplane/base/status.h"
#include "dataplane/model/config.h"

namespace tidepool::model {

// Row-major, little-endian bytes owned by the source.
struct TensorView {
  DType dtype = DType::kBFloat16;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // exactly the product of shape × dtype size

  int64_t num_elements() const;
};

// Thread-safe after construction.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The tensor under its Hugging Face name, e.g.
  // "model.layers.0.self_attn.q_proj.weight" [out, in]. The view stays valid
  // until the next call of Get on the same source (a dummy source makes
  // tensors one at a time).
  // Errors: kNotFound; kInvalidArgument if its shape is not `expected_shape`.
  virtual StatusOr<TensorView> Get(std::string_view name,
                                   std::span<const int64_t> expected_shape) = 0;

  // Names the weights' content; equal for equal bytes. May read all of them.
  virtual StatusOr<Sha256Digest> Digest() = 0;
};

// Opens `model.safetensors`, or the shards that `model.safetensors.index.json`
// names, in `directory`, memory-mapped read-only.
// Errors: kNotFound; kInvalidArgument naming file and tensor.
StatusOr<std::unique_ptr<WeightSource>> OpenSafetensors(
    const std::string& directory);

// Seeded weights of any configuration (`--load-format dummy`): norms are one,
// biases and matrices small enough that activations keep their scale. The same
// seed and config give the same bytes on every machine.
std::unique_ptr<WeightSource> MakeDummyWeights(const ModelConfig& config,
                                               uint64_t seed);

}  // namespace tidepool::model
