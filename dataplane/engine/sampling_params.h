// How the next token of one request is chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "dataplane/base/status.h"

namespace tidepool::engine {

// Bounds on what one request may ask for.
inline constexpr int32_t kMaxLogprobs = 20;
inline constexpr size_t kMaxLogitBiases = 1024;
inline constexpr size_t kMaxStopTokenIds = 256;

// Field names and meanings are those of the OpenAI API and of vLLM.
struct SamplingParams {
  float temperature = 1.0f;         // 0 is greedy; at most 2
  int32_t top_k = 0;                // 0 or -1: all
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // > 0, over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2], over output
  float frequency_penalty = 0.0f;   // [-2, 2], over output
  std::vector<std::pair<int32_t, float>> logit_bias;  // [-100, 100]
  // Draws are RandomAt(seed, position of the token drawn), so a request that
  // moved or was preempted draws the same numbers.
  uint64_t seed = 0;
  int32_t logprobs = -1;  // alternatives besides the chosen one; -1 none
  int32_t prompt_logprobs =
      -1;                   // likewise for every prompt token but the first
  int32_t max_tokens = 16;  // output tokens, ≥ 1
  int32_t min_tokens = 0;   // stop ids and EOS are masked before this many
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;  // besides the model's EOS ids
};

// Errors: kInvalidArgument naming the field.
Status ValidateSamplingParams(const SamplingParams& params, int64_t vocab_size);

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
  int32_t rank = 0;  // 1 is the most likely
};

// Of one position: the token itself first, then the most likely ones.
using PositionLogprobs = std::vector<TokenLogprob>;

}  // namespace tidepool::engine
