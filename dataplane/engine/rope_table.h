// Cosines and sines of rotary position embedding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/model/config.h"

namespace tidepool::engine::internal {

// Sine and cosine of `x` >= 0, within about 1e-15 up to 2^20 quarter turns and
// 1e-9 up to x = 2^24 (the longest context), from additions and multiplications
// alone: the same bits whatever C library is installed.
void SineCosine(double x, double& sine, double& cosine);

// The angle by which a position turns each pair of dimensions, [head_dim / 2],
// with Llama 3's rescaling where the model asks for it. Rounded to float as in
// the reference implementations.
std::vector<float> RopeFrequencies(const model::ModelConfig& config);

// For positions [0, positions). Immutable.
class RopeTable {
 public:
  RopeTable(std::span<const float> frequencies, int64_t positions);

  // [head_dim / 2]
  const float* cosines(int64_t position) const {
    return values_.data() + position * 2 * half_;
  }
  const float* sines(int64_t position) const {
    return cosines(position) + half_;
  }

 private:
  const int64_t half_;
  std::vector<float> values_;  // [position][cosines, then sines]
};

}  // namespace tidepool::engine::internal
