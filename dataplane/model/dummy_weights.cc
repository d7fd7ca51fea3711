// Weights made from a seed: fast enough to start a server of any size without
// a download, and the same on every machine.
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "dataplane/base/random.h"
#include "dataplane/model/weights.h"
#include "dataplane/model/weights_internal.h"

namespace tidepool::model {
namespace {

constexpr double kBiasBound = 0.02;
constexpr uint16_t kBFloat16One = 0x3f80;

// To the nearest, ties to even; `value` is finite and far from the limits.
uint16_t ToBFloat16(double value) {
  const auto single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// 256 evenly spaced values in (-bound, bound), symmetric about zero. bfloat16
// has eight bits of precision, so that a random byte per weight is enough, and
// a table look-up per byte makes eight weights out of one 64-bit draw.
std::array<uint16_t, 256> UniformTable(double bound) {
  std::array<uint16_t, 256> table;
  for (int i = 0; i < 256; ++i)
    table[i] = ToBFloat16((i - 127.5) / 128 * bound);
  return table;
}

void FillUniform(std::span<uint16_t> out, double bound, uint64_t seed) {
  const std::array<uint16_t, 256> table = UniformTable(bound);
  size_t i = 0;
  uint64_t counter = 0;
  for (; i + 8 <= out.size(); i += 8) {
    const uint64_t draw = RandomAt(seed, counter++);
    for (int byte = 0; byte < 8; ++byte)
      out[i + byte] = table[draw >> (8 * byte) & 0xff];
  }
  const uint64_t draw = RandomAt(seed, counter);
  for (int byte = 0; i < out.size(); ++i, ++byte)
    out[i] = table[draw >> (8 * byte) & 0xff];
}

class DummySource : public WeightSource {
 public:
  DummySource(const ModelConfig& config, uint64_t seed) : seed_(seed) {
    for (TensorSpec& spec : TensorsOf(config))
      shapes_.emplace(std::move(spec.name), std::move(spec.shape));
  }

  StatusOr<TensorView> Get(std::string_view name,
                           std::span<const int64_t> expected_shape) override {
    const auto it = shapes_.find(name);
    if (it == shapes_.end()) {
      return NotFound("dummy weights: the configuration has no tensor {:?}",
                      name);
    }
    const std::vector<int64_t>& shape = it->second;
    RETURN_IF_ERROR(CheckShape("dummy weights", name, shape, expected_shape));
    TensorView view{DType::kBFloat16, shape, {}};
    ASSIGN_OR_RETURN(const std::span<uint16_t> values,
                     Reserve(name, static_cast<size_t>(view.num_elements())));
    Fill(name, shape, values);
    view.data = std::as_bytes(values);
    return view;
  }

  StatusOr<Sha256Digest> Digest() override {
    Sha256 digest;
    digest.Update("tidepool dummy weights 1");
    digest.UpdateU64(seed_);
    for (const auto& [name, shape] : shapes_)
      AppendTensor(digest, name, "BF16", shape);
    return digest.Finish();
  }

 private:
  StatusOr<std::span<uint16_t>> Reserve(std::string_view name, size_t count) {
    if (count > capacity_) {
      buffer_.reset(new (std::nothrow) uint16_t[count]);
      capacity_ = buffer_ == nullptr ? 0 : count;
      if (buffer_ == nullptr) {
        return ResourceExhausted(
            "dummy weights: no memory for the {} elements "
            "of tensor {:?}",
            count, name);
      }
    }
    return std::span(buffer_.get(), count);
  }

  void Fill(std::string_view name, std::span<const int64_t> shape,
            std::span<uint16_t> values) const {
    const uint64_t seed = RandomAt(seed_, Checksum64(name));
    if (name.ends_with("norm.weight")) {
      std::ranges::fill(values, kBFloat16One);
    } else if (shape.size() == 1) {
      FillUniform(values, kBiasBound, seed);
    } else {
      // Uniform in ±b has variance b²/3.
      FillUniform(values, std::sqrt(3.0 / static_cast<double>(shape[1])), seed);
    }
  }

  const uint64_t seed_;
  std::map<std::string, std::vector<int64_t>, std::less<>> shapes_;
  std::unique_ptr<uint16_t[]> buffer_;  // the tensor of the last Get
  size_t capacity_ = 0;
};

}  // namespace

std::unique_ptr<WeightSource> MakeDummyWeights(const ModelConfig& config,
                                               uint64_t seed) {
  return std::make_unique<DummySource>(config, seed);
}

}  // namespace tidepool::model
