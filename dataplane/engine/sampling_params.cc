#include "dataplane/engine/sampling_params.h"

#include <cmath>
#include <string_view>

namespace tidepool::engine {
namespace {

// Written so that NaN is out of every range.
Status CheckRange(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument("{} must be in [{}, {}], not {}", field, low, high,
                         value);
}

Status CheckAboveZero(std::string_view field, float value) {
  if (value > 0 && std::isfinite(value)) return OkStatus();
  return InvalidArgument("{} must be a finite number above 0, not {}", field,
                         value);
}

Status CheckToken(std::string_view field, int32_t token, int64_t vocab_size) {
  if (token >= 0 && token < vocab_size) return OkStatus();
  return InvalidArgument("{} has token id {}, which is not in [0, {})", field,
                         token, vocab_size);
}

Status CheckLogprobs(std::string_view field, int32_t value) {
  if (value >= -1 && value <= kMaxLogprobs) return OkStatus();
  return InvalidArgument("{} must be at most {} (-1 for none), not {}", field,
                         kMaxLogprobs, value);
}

}  // namespace

Status ValidateSamplingParams(const SamplingParams& params,
                              int64_t vocab_size) {
  RETURN_IF_ERROR(CheckRange("temperature", params.temperature, 0, 2));
  if (params.top_k < -1) {
    return InvalidArgument("top_k must be at least 1 (0 or -1 for all), not {}",
                           params.top_k);
  }
  RETURN_IF_ERROR(CheckAboveZero("top_p", params.top_p));
  RETURN_IF_ERROR(CheckRange("top_p", params.top_p, 0, 1));
  RETURN_IF_ERROR(CheckRange("min_p", params.min_p, 0, 1));
  RETURN_IF_ERROR(
      CheckAboveZero("repetition_penalty", params.repetition_penalty));
  RETURN_IF_ERROR(
      CheckRange("presence_penalty", params.presence_penalty, -2, 2));
  RETURN_IF_ERROR(
      CheckRange("frequency_penalty", params.frequency_penalty, -2, 2));
  if (params.logit_bias.size() > kMaxLogitBiases) {
    return InvalidArgument("logit_bias has {} entries; at most {} are allowed",
                           params.logit_bias.size(), kMaxLogitBiases);
  }
  for (const auto& [token, bias] : params.logit_bias) {
    RETURN_IF_ERROR(CheckToken("logit_bias", token, vocab_size));
    RETURN_IF_ERROR(CheckRange("logit_bias", bias, -100, 100));
  }
  RETURN_IF_ERROR(CheckLogprobs("logprobs", params.logprobs));
  RETURN_IF_ERROR(CheckLogprobs("prompt_logprobs", params.prompt_logprobs));
  if (params.max_tokens < 1) {
    return InvalidArgument("max_tokens must be at least 1, not {}",
                           params.max_tokens);
  }
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens) {
    return InvalidArgument("min_tokens must be in [0, max_tokens = {}], not {}",
                           params.max_tokens, params.min_tokens);
  }
  if (params.stop_token_ids.size() > kMaxStopTokenIds) {
    return InvalidArgument(
        "stop_token_ids has {} entries; at most {} are allowed",
        params.stop_token_ids.size(), kMaxStopTokenIds);
  }
  for (const int32_t token : params.stop_token_ids) {
    RETURN_IF_ERROR(CheckToken("stop_token_ids", token, vocab_size));
  }
  return OkStatus();
}

}  // namespace tidepool::engine
