#include "dataplane/engine/sampler_math.h"

#include <bit>
#include <limits>

namespace tidepool::engine::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr int kLanes = 8;

// Where ExpOf becomes 0.
constexpr float kLowestExponent = -88.0f;

// exp(x) for x in [kLowestExponent, 0] by 2^n * e^r, |r| <= ln(2) / 2, and the
// Taylor series of e^r to the seventh power.
inline float ExpOf(float x) {
  // Adding 1.5 * 2^23 rounds to the nearest integer.
  constexpr float kRounder = 12582912.0f;
  const float n = (x * 1.44269504f + kRounder) - kRounder;
  // ln(2) in two parts, the first exact in few bits.
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float series = 1.0f / 5040;
  series = series * r + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  // n = -127 makes all bits zero, and so the result.
  return series * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

}  // namespace

void CopySanitized(std::span<const float> logits, std::span<float> values) {
  const size_t size = logits.size();
  for (size_t i = 0; i < size; ++i) {
    const float value = logits[i] < kLargest ? logits[i] : kLargest;
    // Comparisons with NaN are false; the one above made it kLargest.
    values[i] = logits[i] == logits[i] ? value : -kInfinity;
  }
  for (size_t i = size; i < values.size(); ++i) values[i] = -kInfinity;
}

float MaxOf(std::span<const float> values) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = -kInfinity;
  for (size_t i = 0; i < values.size(); i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
    }
  }
  float max = lanes[0];
  for (const float lane : lanes) max = lane > max ? lane : max;
  return max;
}

float MinFiniteOf(std::span<const float> values, float none) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = kInfinity;
  for (size_t i = 0; i < values.size(); i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float value =
          values[i + j] > -kInfinity ? values[i + j] : kInfinity;
      lanes[j] = value < lanes[j] ? value : lanes[j];
    }
  }
  float min = lanes[0];
  for (const float lane : lanes) min = lane < min ? lane : min;
  return min < kInfinity ? min : none;
}

int64_t CountAbove(std::span<const float> values, float threshold) {
  int64_t count = 0;
  for (size_t i = 0; i < values.size(); i += kBlock) {
    int32_t in_block = 0;
    for (int j = 0; j < kBlock; ++j) in_block += values[i + j] > threshold;
    count += in_block;
  }
  return count;
}

void ExpWeights(std::span<const float> values, float max, float scale,
                std::span<float> weights) {
  // Two loops, because a clamp inside the second keeps it from vectorizing.
  for (size_t i = 0; i < values.size(); ++i) {
    const float x = (values[i] - max) * scale;
    weights[i] = x > kLowestExponent ? x : kLowestExponent;
  }
  for (float& weight : weights) weight = ExpOf(weight);
}

void DropBelow(float minimum, std::span<float> values,
               std::span<float> weights) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = weights[i] >= minimum ? values[i] : -kInfinity;
  }
  for (float& weight : weights) weight = weight >= minimum ? weight : 0.0f;
}

void DropBeyond(std::span<const float> values, float value, int32_t id,
                std::span<float> weights) {
  for (size_t i = 0; i < values.size(); ++i) {
    const bool keep = values[i] > value ||
                      (values[i] == value && static_cast<int32_t>(i) <= id);
    weights[i] = keep ? weights[i] : 0.0f;
  }
}

void SumBlocks(std::span<const float> weights, std::span<double> sums) {
  for (size_t block = 0; block < sums.size(); ++block) {
    const float* values = weights.data() + block * kBlock;
    double lanes[kLanes] = {};
    for (int i = 0; i < kBlock; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) lanes[j] += double{values[i + j]};
    }
    sums[block] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                  ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

void AssignBuckets(std::span<const float> values, float max, float min,
                   int32_t count, std::span<int32_t> buckets) {
  const float range = max - min;
  // Without a range that can be divided, one bucket takes all.
  const float scale = range > 1e-30f && range <= kLargest
                          ? static_cast<float>(count) / range
                          : 0.0f;
  const float last = static_cast<float>(count - 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const float distance = max - values[i];
    const float position = (distance <= kLargest ? distance : 0.0f) * scale;
    const float bounded = position < last ? position : last;
    buckets[i] = values[i] > -kInfinity ? static_cast<int32_t>(bounded) : -1;
  }
}

}  // namespace tidepool::engine::internal
