// Draws the next token of a sequence from its logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/engine/step_plan.h"

namespace tidepool::engine {

// The order of steps is vLLM's: token mask, min_tokens, logit_bias, penalties,
// temperature, min_p, top_k, top_p. Temperatures below 1e-5 are greedy. Log
// probabilities are those of the raw logits, before any of it; none is lower
// than -9999, so that all can be written as JSON.
//
// A result depends on the arguments alone: sums have a fixed order, ties go to
// the lowest id, and the random number is RandomAt(seed, end). NaN counts as
// minus infinity, plus infinity as the largest float; where nothing may be
// drawn, the lowest id that the mask allows is.
//
// Externally synchronized: one per thread. Does not allocate after the largest
// `logprobs` was seen.
class Sampler {
 public:
  // `eos_ids` are masked, besides the request's stop ids, until min_tokens are
  // out. (ignore_eos masks nothing: the planner goes on after an EOS.)
  Sampler(int64_t vocab_size, std::span<const int32_t> eos_ids);

  // `logits`: [vocab_size] of position step.end - 1; `step.sampling` is valid
  // for this vocabulary. Sets `sampled`, `token` and `logprobs` of `out`.
  void Sample(std::span<const float> logits, const SequenceStep& step,
              SequenceResult& out);

  // `logits`: [vocab_size]; `out` is overwritten with `actual_token` and the
  // `count` most likely tokens (fewer if the vocabulary is smaller).
  void PromptLogprobs(std::span<const float> logits, int32_t actual_token,
                      int32_t count, PositionLogprobs& out);

 private:
  // What top_k and top_p leave: the values above `value`, and of those equal
  // to it the ids up to `id`; `mass` is the sum of their weights.
  struct Cut {
    float value;
    int32_t id;
    double mass;
  };

  void Load(std::span<const float> logits);
  void Logprobs(int32_t token, int32_t count, PositionLogprobs& out);
  void MaskStops(const SequenceStep& step);
  void ApplyPenalties(const SequenceStep& step);
  int32_t Draw(const SequenceStep& step);
  Cut CutOf(const SamplingParams& params, float max);
  // Keeps the most likely until there are `count` or they weigh `mass`.
  Cut CutAfter(int64_t count, double mass);

  const int32_t vocab_size_;
  std::vector<int32_t> eos_ids_;
  // Working memory, reused; the first three are padded to whole blocks.
  std::vector<float> values_;       // logits, adjusted step by step
  std::vector<float> weights_;      // exp((value - max) / temperature)
  std::vector<int32_t> bucket_of_;  // by value, descending; -1 if masked
  std::vector<double> block_sums_;  // of weights
  std::vector<int32_t> counts_;     // of each token in the output; else 0
  std::vector<uint8_t> is_seen_;    // of each token; else 0
  std::vector<int32_t> seen_;       // tokens of the context, each once
  std::vector<int64_t> bucket_counts_;
  std::vector<double> bucket_masses_;
  std::vector<int32_t> bucket_members_;
};

}  // namespace tidepool::engine
