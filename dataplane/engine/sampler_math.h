// Loops over the vocabulary, written so that they vectorize and yet give the
// same bits on every machine: no libm, no reordered sums.
#pragma once

#include <cstdint>
#include <span>

namespace tidepool::engine::internal {

// Arrays are padded to a multiple of this many values.
inline constexpr int64_t kBlock = 256;

// Copies `logits` with NaN as minus infinity and plus infinity as the largest
// float, then pads with minus infinity up to `values.size()`.
void CopySanitized(std::span<const float> logits, std::span<float> values);

float MaxOf(std::span<const float> values);
// The smallest value above minus infinity; `none` if there is none.
float MinFiniteOf(std::span<const float> values, float none);
int64_t CountAbove(std::span<const float> values, float threshold);

// weights[i] = exp((values[i] - max) * scale), within 3e-7 of it and exactly 1
// at the maximum; 0 below exp(-88). `max` is finite and the largest value.
void ExpWeights(std::span<const float> values, float max, float scale,
                std::span<float> weights);

// Drops what weighs less than `minimum`: value minus infinity, weight 0.
void DropBelow(float minimum, std::span<float> values,
               std::span<float> weights);

// Clears the weights of what `value`, and up to which id at that value, cuts
// off.
void DropBeyond(std::span<const float> values, float value, int32_t id,
                std::span<float> weights);

// sums[b] is the sum of block b of `weights`, in a fixed order.
void SumBlocks(std::span<const float> weights, std::span<double> sums);

// buckets[i] grows from 0 at `max` to `count` - 1 at `min` and below, and is -1
// for minus infinity.
void AssignBuckets(std::span<const float> values, float max, float min,
                   int32_t count, std::span<int32_t> buckets);

}  // namespace tidepool::engine::internal
