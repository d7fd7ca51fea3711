// The bodies of the OpenAI-compatible endpoints, parsed and validated. Which
// fields are honoured, ignored or refused: docs/api-compatibility.md.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dataplane/base/status.h"
#include "tidepool/worker/v1/types.pb.h"

namespace tidepool::conductor {

// What the served model and the operator allow.
struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;  // prompt and output together
  int64_t choices_max = 256;  // prompts × n of one call
};

// Text that is still to be tokenized, or ids.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

// A conversation for the chat template.
struct ChatPrompt {
  // `messages`, `add_generation_prompt`, and where given `tools`, `documents`,
  // `reasoning_effort` and the members of `chat_template_kwargs`. Messages are
  // as the client sent them, except that the role "developer" is "system" and
  // that arguments of tool calls are objects, as templates expect.
  std::shared_ptr<const nlohmann::ordered_json> context;
};

// `context` with the text parts of each message joined by newlines, and "" for
// no content, for templates that take `content` as one string.
std::shared_ptr<const nlohmann::ordered_json> JoinTextParts(
    const nlohmann::ordered_json& context);

// One call of /v1/completions or /v1/chat/completions.
struct GenerationCall {
  enum class Kind { kCompletion, kChat };

  Kind kind = Kind::kCompletion;
  std::string model;
  std::vector<Prompt> prompts;  // of a completion, at least one
  ChatPrompt chat;              // of a chat

  // Everything but `max_tokens`, `min_tokens` and `seed` is final.
  worker::v1::SamplingParams sampling;
  std::optional<uint64_t> seed;
  // Absent: 16 in a completion, what the context leaves in a chat. 0 only with
  // `echo`.
  std::optional<int64_t> max_tokens;
  int32_t n = 1;
  std::vector<std::string> stop;
  std::string cache_salt;

  bool stream = false;
  bool include_usage = false;           // stream_options
  bool continuous_usage_stats = false;  // stream_options
  bool echo = false;
  std::optional<int32_t> logprobs;  // alternatives, as sampling.logprobs
  std::optional<int32_t> prompt_logprobs;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;  // "token_id:7" in logprobs
  bool skip_special_tokens = true;
  bool include_stop_str_in_output = false;
  bool add_special_tokens = true;  // false by default in a chat
};

// `defaults` are the sampling parameters of calls that state none.
// Errors: kInvalidArgument, and kUnimplemented for what is known but not
// served, with the field in ToApiError(status).param.
StatusOr<GenerationCall> ParseCompletion(
    std::string_view body, const RequestLimits& limits,
    const worker::v1::SamplingParams& defaults);
StatusOr<GenerationCall> ParseChat(std::string_view body,
                                   const RequestLimits& limits,
                                   const worker::v1::SamplingParams& defaults);

// POST /tokenize.
struct TokenizeCall {
  std::string model;  // "" if not given
  bool is_chat = false;
  std::string prompt;
  ChatPrompt chat;
  bool add_special_tokens = true;  // false by default in a chat
  bool return_token_strs = false;
};
StatusOr<TokenizeCall> ParseTokenize(std::string_view body);

// POST /detokenize.
struct DetokenizeCall {
  std::string model;  // "" if not given
  std::vector<int32_t> tokens;
};
StatusOr<DetokenizeCall> ParseDetokenize(std::string_view body,
                                         int64_t vocab_size);

}  // namespace tidepool::conductor
