// Where a model's tensors come from: safetensors files or a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/digest.h"
#include "dataplane/base/status.h"
#include "dataplane/model/config.h"

namespace tidepool::model {

// Row-major, little-endian bytes owned by the source; not necessarily aligned
// to the element size.
struct TensorView {
  DType dtype = DType::kBFloat16;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // exactly the product of shape × dtype size

  int64_t num_elements() const;
};

// Externally synchronized.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The tensor under its Hugging Face name, e.g.
  // "model.layers.0.self_attn.q_proj.weight" [out, in]. The view stays valid
  // until the next call of Get on the same source (a dummy source makes
  // tensors one at a time).
  // Errors: kNotFound; kInvalidArgument if its shape is not `expected_shape`;
  // kUnimplemented for a dtype other than F32, F16 and BF16;
  // kResourceExhausted if a dummy tensor does not fit in memory.
  virtual StatusOr<TensorView> Get(std::string_view name,
                                   std::span<const int64_t> expected_shape) = 0;

  // Names the weights' content: equal for the same tensors (names, shapes,
  // dtypes, bytes) however they are spread over files. A dummy source names
  // its configuration and seed instead of the bytes they make. May read all
  // weights.
  virtual StatusOr<Sha256Digest> Digest() = 0;
};

// Opens `model.safetensors`, or the shards that `model.safetensors.index.json`
// names, in `directory`, memory-mapped read-only; the single file wins where
// both are. Headers, sizes and the index are checked here, so that Get cannot
// leave a file; one truncated after this call ends the process with SIGBUS.
// Views stay valid as long as the source.
// Errors: kNotFound; kInvalidArgument naming file and tensor.
StatusOr<std::unique_ptr<WeightSource>> OpenSafetensors(
    const std::string& directory);

// Seeded bfloat16 weights of any configuration (`--load-format dummy`): norms
// are one, matrices of variance 1/inputs so that activations keep their scale,
// biases small. A tensor depends on the seed, its name and its shape alone: the
// same bytes on every machine and for every pipeline stage.
std::unique_ptr<WeightSource> MakeDummyWeights(const ModelConfig& config,
                                               uint64_t seed);

// Writes every tensor that `config` needs from `source` to `path` as one
// safetensors file, so that other programs can load the very same weights.
// Replaces the file. Errors: those of Get and of `errno`.
Status WriteSafetensors(const ModelConfig& config, WeightSource& source,
                        const std::string& path);

}  // namespace tidepool::model
