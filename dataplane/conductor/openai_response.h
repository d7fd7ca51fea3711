// The answers of the OpenAI-compatible endpoints, as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/conductor/json_writer.h"
#include "dataplane/conductor/openai_request.h"
#include "dataplane/conductor/output_processor.h"
#include "dataplane/model/tokenizer.h"
#include "tidepool/worker/v1/types.pb.h"

namespace tidepool::conductor {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

// Logprobs of consecutive tokens; `positions` may start with one without
// entries (the first token of an echoed prompt has no probability).
struct TokenLogprobs {
  std::vector<int32_t> tokens;
  std::vector<worker::v1::PositionLogprobs> positions;
};

// What is new in one choice, or all of it.
struct ChoiceOutput {
  int32_t index = 0;
  std::string text;
  std::vector<int32_t> tokens;
  std::optional<TokenLogprobs> logprobs;
  int64_t text_offset = 0;  // characters in front of logprobs' first token
  Finish finish = Finish::kNone;
  std::variant<std::monostate, std::string, int32_t> stop_reason;
  // Points to the prompt where it is to be shown.
  const std::vector<int32_t>* prompt = nullptr;
  const std::vector<worker::v1::PositionLogprobs>* prompt_logprobs = nullptr;
};

// Writes the answers of one call. Immutable; `tokenizer` (null without one)
// and `call` outlive it.
class ResponseWriter {
 public:
  ResponseWriter(const GenerationCall& call, const model::Tokenizer* tokenizer,
                 std::string id, int64_t created)
      : call_(call),
        tokenizer_(tokenizer),
        id_(std::move(id)),
        created_(created) {}

  // The answer of a call that does not stream.
  std::string Whole(std::span<const ChoiceOutput> choices,
                    const Usage& usage) const;

  // One event of a stream. Chats start each choice with a RoleChunk.
  std::string Chunk(const ChoiceOutput& choice, const Usage* usage) const;
  std::string RoleChunk(const ChoiceOutput& choice, const Usage* usage) const;
  // The last event with `include_usage`: no choices.
  std::string UsageChunk(const Usage& usage) const;

  // How many characters the text of `tokens` has in `text_offset`.
  int64_t CountCharacters(std::span<const int32_t> tokens) const;

 private:
  bool is_chat() const { return call_.kind == GenerationCall::Kind::kChat; }
  JsonWriter Begin(std::string_view object) const;
  void WriteChunkUsage(JsonWriter& json, const Usage* usage) const;
  void WriteLogprobs(JsonWriter& json, const ChoiceOutput& choice) const;
  void WriteCompletionLogprobs(JsonWriter& json, const TokenLogprobs& logprobs,
                               int64_t text_offset) const;
  void WriteChatLogprobs(JsonWriter& json, const TokenLogprobs& logprobs) const;
  void WriteChatToken(JsonWriter& json,
                      const worker::v1::TokenLogprob& token) const;
  void WritePromptLogprobs(JsonWriter& json, const ChoiceOutput& choice) const;
  void WriteEnd(JsonWriter& json, const ChoiceOutput& choice) const;
  std::string TokenName(int32_t token) const;

  const GenerationCall& call_;
  const model::Tokenizer* const tokenizer_;
  const std::string id_;
  const int64_t created_;
};

}  // namespace tidepool::conductor
