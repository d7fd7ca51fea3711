#include "dataplane/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"
#include "dataplane/base/random.h"
#include "dataplane/engine/sampler_math.h"

namespace tidepool::engine {
namespace {

using internal::kBlock;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kGreedyBelow = 1e-5f;
constexpr double kLowestLogprob = -9999;
// Fine enough that the bucket where a filter ends, the only one that is
// sorted, holds few tokens.
constexpr int32_t kBuckets = 4096;

bool IsAllowed(std::span<const uint64_t> mask, size_t token) {
  return (mask[token / 64] >> (token % 64) & 1) != 0;
}

int32_t FirstAllowed(std::span<const uint64_t> mask, int32_t vocab_size) {
  for (int32_t token = 0; !mask.empty() && token < vocab_size; ++token) {
    if (IsAllowed(mask, token)) return token;
  }
  return 0;
}

}  // namespace

Sampler::Sampler(int64_t vocab_size, std::span<const int32_t> eos_ids)
    : vocab_size_(static_cast<int32_t>(vocab_size)) {
  CHECK(vocab_size > 0 && vocab_size <= std::numeric_limits<int32_t>::max());
  for (const int32_t id : eos_ids) {
    if (id >= 0 && id < vocab_size) eos_ids_.push_back(id);
  }
  const int64_t blocks = CeilDiv(vocab_size, kBlock);
  values_.resize(blocks * kBlock);
  weights_.resize(blocks * kBlock);
  bucket_of_.resize(blocks * kBlock);
  block_sums_.resize(blocks);
  counts_.resize(vocab_size);
  is_seen_.resize(vocab_size);
  seen_.reserve(vocab_size);
  bucket_counts_.resize(kBuckets);
  bucket_masses_.resize(kBuckets);
  bucket_members_.reserve(vocab_size);
}

void Sampler::Sample(std::span<const float> logits, const SequenceStep& step,
                     SequenceResult& out) {
  Load(logits);
  if (!step.token_mask.empty()) {
    CHECK(step.token_mask.size() * 64 >= logits.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!IsAllowed(step.token_mask, i)) values_[i] = -kInfinity;
    }
  }
  MaskStops(step);
  for (const auto& [token, bias] : step.sampling->logit_bias) {
    values_[token] += bias;
  }
  ApplyPenalties(step);
  out.sampled = true;
  out.token = Draw(step);
  out.logprobs.clear();
  if (step.sampling->logprobs < 0) return;
  Load(logits);
  Logprobs(out.token, step.sampling->logprobs, out.logprobs);
}

void Sampler::PromptLogprobs(std::span<const float> logits,
                             int32_t actual_token, int32_t count,
                             PositionLogprobs& out) {
  Load(logits);
  Logprobs(actual_token, count, out);
}

void Sampler::Load(std::span<const float> logits) {
  CHECK(std::ssize(logits) == vocab_size_);
  internal::CopySanitized(logits, values_);
}

void Sampler::Logprobs(int32_t token, int32_t count, PositionLogprobs& out) {
  const float max = internal::MaxOf(values_);
  // Of no use when every logit was NaN, but finite.
  const float reference = max > -kInfinity ? max : 0;
  internal::ExpWeights(values_, reference, 1, weights_);
  internal::SumBlocks(weights_, block_sums_);
  double sum = 0;
  for (const double block : block_sums_) sum += block;
  const double log_sum = std::log(std::max(sum, 1.0));
  const auto logprob_of = [&](int32_t id) {
    const double raw = double{values_[id]} - double{reference} - log_sum;
    return static_cast<float>(std::max(raw, kLowestLogprob));
  };

  out.clear();
  out.push_back({.token = token,
                 .logprob = logprob_of(token),
                 .rank = static_cast<int32_t>(
                     1 + internal::CountAbove(values_, values_[token]))});
  const int64_t wanted = std::min<int64_t>(count, vocab_size_);
  if (wanted <= 0) return;
  // Insertion into a list of at most kMaxLogprobs, ids ascending, so that ties
  // stay in their order; nearly every token fails the first comparison.
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (std::ssize(out) > wanted) {
      if (values_[id] <= values_[out.back().token]) continue;
      out.pop_back();
    }
    out.push_back({.token = id});
    for (size_t i = out.size() - 1;
         i > 1 && values_[out[i].token] > values_[out[i - 1].token]; --i) {
      std::swap(out[i], out[i - 1]);
    }
  }
  for (size_t i = 1; i < out.size(); ++i) {
    const bool tied =
        i > 1 && values_[out[i].token] == values_[out[i - 1].token];
    out[i].logprob = logprob_of(out[i].token);
    out[i].rank = tied ? out[i - 1].rank : static_cast<int32_t>(i);
  }
}

void Sampler::MaskStops(const SequenceStep& step) {
  const int64_t output_tokens = std::ssize(step.context) - step.prompt_tokens;
  if (output_tokens >= step.sampling->min_tokens) return;
  for (const int32_t id : eos_ids_) values_[id] = -kInfinity;
  for (const int32_t id : step.sampling->stop_token_ids) {
    values_[id] = -kInfinity;
  }
}

void Sampler::ApplyPenalties(const SequenceStep& step) {
  const SamplingParams& params = *step.sampling;
  if (params.repetition_penalty == 1 && params.presence_penalty == 0 &&
      params.frequency_penalty == 0) {
    return;
  }
  for (size_t i = 0; i < step.context.size(); ++i) {
    const int32_t token = step.context[i];
    if (!is_seen_[token]) seen_.push_back(token);
    is_seen_[token] = 1;
    if (std::cmp_greater_equal(i, step.prompt_tokens)) ++counts_[token];
  }
  for (const int32_t token : seen_) {
    float value = values_[token];
    value = value > 0 ? value / params.repetition_penalty
                      : value * params.repetition_penalty;
    if (counts_[token] > 0) {
      value -= params.presence_penalty +
               params.frequency_penalty * static_cast<float>(counts_[token]);
    }
    values_[token] = std::min(value, kLargest);
    is_seen_[token] = 0;
    counts_[token] = 0;
  }
  seen_.clear();
}

int32_t Sampler::Draw(const SequenceStep& step) {
  const SamplingParams& params = *step.sampling;
  const float max = internal::MaxOf(values_);
  if (max == -kInfinity) return FirstAllowed(step.token_mask, vocab_size_);
  if (params.temperature < kGreedyBelow) {
    return static_cast<int32_t>(std::ranges::find(values_, max) -
                                values_.begin());
  }
  internal::ExpWeights(values_, max, 1 / params.temperature, weights_);
  if (params.min_p > 0) internal::DropBelow(params.min_p, values_, weights_);
  if ((params.top_k > 0 && params.top_k < vocab_size_) || params.top_p < 1) {
    const Cut cut = CutOf(params, max);
    internal::DropBeyond(values_, cut.value, cut.id, weights_);
  }

  // The inverse of the distribution function over ids: first the block, then
  // the token. The most likely token weighs 1, so there is something to draw.
  internal::SumBlocks(weights_, block_sums_);
  double total = 0;
  size_t last = 0;
  for (size_t block = 0; block < block_sums_.size(); ++block) {
    total += block_sums_[block];
    if (block_sums_[block] > 0) last = block;
  }
  double rest = ToUnit(RandomAt(params.seed, step.end)) * total;
  size_t block = 0;
  while (block < last && rest >= block_sums_[block]) {
    rest -= block_sums_[block++];
  }
  // Rounding may leave `rest` past the last token of the block that can be
  // drawn; then that one is.
  size_t drawn = 0;
  for (size_t i = block * kBlock; i < (block + 1) * kBlock && rest >= 0; ++i) {
    if (weights_[i] == 0) continue;
    drawn = i;
    rest -= double{weights_[i]};
  }
  return static_cast<int32_t>(drawn);
}

Sampler::Cut Sampler::CutOf(const SamplingParams& params, float max) {
  internal::AssignBuckets(values_, max, internal::MinFiniteOf(values_, max),
                          kBuckets, bucket_of_);
  std::ranges::fill(bucket_counts_, 0);
  std::ranges::fill(bucket_masses_, 0);
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (bucket_of_[id] < 0) continue;
    ++bucket_counts_[bucket_of_[id]];
    bucket_masses_[bucket_of_[id]] += double{weights_[id]};
  }
  const int64_t count = params.top_k > 0 ? params.top_k : vocab_size_;
  const Cut by_count = CutAfter(count, std::numeric_limits<double>::infinity());
  if (params.top_p >= 1) return by_count;
  return CutAfter(count, double{params.top_p} * by_count.mass);
}

Sampler::Cut Sampler::CutAfter(int64_t count, double mass) {
  int64_t kept = 0;
  Cut cut{.value = -kInfinity, .id = vocab_size_, .mass = 0};
  int32_t bucket = 0;
  while (bucket < kBuckets && kept + bucket_counts_[bucket] < count &&
         cut.mass + bucket_masses_[bucket] < mass) {
    kept += bucket_counts_[bucket];
    cut.mass += bucket_masses_[bucket++];
  }
  if (bucket == kBuckets) return cut;

  bucket_members_.clear();
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (bucket_of_[id] == bucket) bucket_members_.push_back(id);
  }
  std::ranges::sort(bucket_members_, [this](int32_t a, int32_t b) {
    return values_[a] != values_[b] ? values_[a] > values_[b] : a < b;
  });
  for (const int32_t id : bucket_members_) {
    cut.value = values_[id];
    cut.id = id;
    cut.mass += double{weights_[id]};
    if (++kept >= count || cut.mass >= mass) break;
  }
  return cut;
}

}  // namespace tidepool::engine
