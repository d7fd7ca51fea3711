#include "dataplane/conductor/openai_response.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tidepool::conductor {

using worker::v1::PositionLogprobs;
using worker::v1::TokenLogprob;

namespace {

// JSON has no infinity: a token that could not be drawn is as unlikely as
// clients know it from other servers.
constexpr float kLogprobMin = -9999.0f;

float Finite(float logprob) { return std::max(logprob, kLogprobMin); }

void WriteUsage(JsonWriter& json, const Usage& usage) {
  json.Key("usage").BeginObject();
  json.Field("prompt_tokens", usage.prompt_tokens)
      .Field("completion_tokens", usage.completion_tokens)
      .Field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.Key("prompt_tokens_details")
      .BeginObject()
      .Field("cached_tokens", usage.cached_tokens)
      .EndObject();
  json.EndObject();
}

void WriteIds(JsonWriter& json, std::string_view name,
              std::span<const int32_t> ids) {
  json.Key(name).BeginArray();
  for (const int32_t id : ids) json.Value(id);
  json.EndArray();
}

// The token itself and the `count` most likely ones, most likely first, each
// once.
std::vector<const TokenLogprob*> Alternatives(const PositionLogprobs& position,
                                              int32_t count,
                                              bool always_with_own) {
  std::vector<const TokenLogprob*> all;
  for (const TokenLogprob& entry : position.tokens())
    if (std::ranges::none_of(all, [&](const TokenLogprob* other) {
          return other->token() == entry.token();
        }))
      all.push_back(&entry);
  const TokenLogprob* const own = all.empty() ? nullptr : all.front();
  std::ranges::stable_sort(all, {}, &TokenLogprob::rank);
  if (all.size() > static_cast<size_t>(count)) {
    all.resize(static_cast<size_t>(count));
    if (always_with_own && std::ranges::find(all, own) == all.end())
      all.push_back(own);
  }
  return all;
}

}  // namespace

std::string ResponseWriter::TokenName(int32_t token) const {
  if (!tokenizer_ || call_.return_tokens_as_token_ids)
    return fmt::format("token_id:{}", token);
  return tokenizer_->TokenText(token);
}

int64_t ResponseWriter::CountCharacters(std::span<const int32_t> tokens) const {
  int64_t count = 0;
  for (const int32_t token : tokens)
    for (const char c : TokenName(token))
      count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

JsonWriter ResponseWriter::Begin(std::string_view object) const {
  JsonWriter json;
  json.BeginObject()
      .Field("id", id_)
      .Field("object", object)
      .Field("created", created_)
      .Field("model", call_.model);
  return json;
}

void ResponseWriter::WriteChatToken(JsonWriter& json,
                                    const TokenLogprob& token) const {
  json.Field("token", TokenName(token.token()))
      .Field("logprob", Finite(token.logprob()));
  if (!tokenizer_) {
    json.NullField("bytes");
    return;
  }
  json.Key("bytes").BeginArray();
  for (const char c : tokenizer_->TokenBytes(token.token()))
    json.Value(static_cast<int32_t>(static_cast<unsigned char>(c)));
  json.EndArray();
}

void ResponseWriter::WriteChatLogprobs(JsonWriter& json,
                                       const TokenLogprobs& logprobs) const {
  json.BeginObject().Key("content").BeginArray();
  for (const PositionLogprobs& position : logprobs.positions) {
    if (position.tokens().empty()) continue;
    json.BeginObject();
    WriteChatToken(json, position.tokens(0));
    json.Key("top_logprobs").BeginArray();
    for (const TokenLogprob* token :
         Alternatives(position, *call_.logprobs, /*always_with_own=*/false)) {
      json.BeginObject();
      WriteChatToken(json, *token);
      json.EndObject();
    }
    json.EndArray().EndObject();
  }
  json.EndArray().NullField("refusal").EndObject();
}

void ResponseWriter::WriteCompletionLogprobs(JsonWriter& json,
                                             const TokenLogprobs& logprobs,
                                             int64_t text_offset) const {
  json.BeginObject().Key("tokens").BeginArray();
  for (const int32_t token : logprobs.tokens) json.Value(TokenName(token));
  json.EndArray().Key("token_logprobs").BeginArray();
  for (const PositionLogprobs& position : logprobs.positions)
    position.tokens().empty()
        ? json.Null()
        : json.Value(Finite(position.tokens(0).logprob()));
  json.EndArray().Key("top_logprobs").BeginArray();
  for (const PositionLogprobs& position : logprobs.positions) {
    if (position.tokens().empty()) {
      json.Null();
      continue;
    }
    json.BeginObject();
    // Tokens of one spelling (parts of characters) share a key: the likeliest
    // has it.
    std::set<std::string> names;
    for (const TokenLogprob* token :
         Alternatives(position, *call_.logprobs, /*always_with_own=*/true)) {
      const auto [name, is_new] = names.insert(TokenName(token->token()));
      if (is_new) json.Field(*name, Finite(token->logprob()));
    }
    json.EndObject();
  }
  json.EndArray().Key("text_offset").BeginArray();
  for (const int32_t token : logprobs.tokens) {
    json.Value(text_offset);
    text_offset += CountCharacters({&token, 1});
  }
  json.EndArray().EndObject();
}

void ResponseWriter::WriteLogprobs(JsonWriter& json,
                                   const ChoiceOutput& choice) const {
  json.Key("logprobs");
  if (!choice.logprobs)
    json.Null();
  else if (is_chat())
    WriteChatLogprobs(json, *choice.logprobs);
  else
    WriteCompletionLogprobs(json, *choice.logprobs, choice.text_offset);
}

void ResponseWriter::WritePromptLogprobs(JsonWriter& json,
                                         const ChoiceOutput& choice) const {
  if (!choice.prompt_logprobs) return;
  json.Key("prompt_logprobs").BeginArray().Null();
  for (const PositionLogprobs& position : *choice.prompt_logprobs) {
    json.BeginObject();
    for (const TokenLogprob* token :
         Alternatives(position, call_.prompt_logprobs.value_or(0),
                      /*always_with_own=*/true)) {
      json.Key(std::to_string(token->token())).BeginObject();
      json.Field("logprob", Finite(token->logprob()))
          .Field("rank", token->rank());
      json.Field("decoded_token", TokenName(token->token())).EndObject();
    }
    json.EndObject();
  }
  json.EndArray();
}

// What all shapes of a choice end with.
void ResponseWriter::WriteEnd(JsonWriter& json,
                              const ChoiceOutput& choice) const {
  if (choice.finish == Finish::kNone)
    json.NullField("finish_reason");
  else
    json.Field("finish_reason", NameOf(choice.finish));
  if (const auto* stop = std::get_if<std::string>(&choice.stop_reason))
    json.Field("stop_reason", *stop);
  else if (const auto* token = std::get_if<int32_t>(&choice.stop_reason))
    json.Field("stop_reason", *token);
  else
    json.NullField("stop_reason");
  if (!call_.return_token_ids) return;
  if (choice.prompt) WriteIds(json, "prompt_token_ids", *choice.prompt);
  WriteIds(json, "token_ids", choice.tokens);
}

std::string ResponseWriter::Whole(std::span<const ChoiceOutput> choices,
                                  const Usage& usage) const {
  JsonWriter json = Begin(is_chat() ? "chat.completion" : "text_completion");
  json.Key("choices").BeginArray();
  for (const ChoiceOutput& choice : choices) {
    json.BeginObject().Field("index", choice.index);
    if (is_chat()) {
      json.Key("message").BeginObject();
      json.Field("role", "assistant").Field("content", choice.text);
      json.NullField("refusal").EndObject();
    } else {
      json.Field("text", choice.text);
    }
    WriteLogprobs(json, choice);
    if (!is_chat()) WritePromptLogprobs(json, choice);
    WriteEnd(json, choice);
    json.EndObject();
  }
  json.EndArray();
  WriteUsage(json, usage);
  // A chat has one prompt, and other servers show it beside the choices.
  if (is_chat() && !choices.empty()) {
    WritePromptLogprobs(json, choices.front());
    if (call_.return_token_ids && choices.front().prompt)
      WriteIds(json, "prompt_token_ids", *choices.front().prompt);
  }
  json.EndObject();
  return json.Take();
}

void ResponseWriter::WriteChunkUsage(JsonWriter& json,
                                     const Usage* usage) const {
  if (!call_.include_usage) return;
  if (usage && call_.continuous_usage_stats)
    WriteUsage(json, *usage);
  else
    json.NullField("usage");
}

std::string ResponseWriter::Chunk(const ChoiceOutput& choice,
                                  const Usage* usage) const {
  JsonWriter json =
      Begin(is_chat() ? "chat.completion.chunk" : "text_completion");
  json.Key("choices").BeginArray().BeginObject();
  json.Field("index", choice.index);
  if (is_chat()) {
    json.Key("delta").BeginObject();
    if (!choice.text.empty()) json.Field("content", choice.text);
    json.EndObject();
  } else {
    json.Field("text", choice.text);
  }
  WriteLogprobs(json, choice);
  WriteEnd(json, choice);
  json.EndObject().EndArray();
  WriteChunkUsage(json, usage);
  json.EndObject();
  return json.Take();
}

std::string ResponseWriter::RoleChunk(const ChoiceOutput& choice,
                                      const Usage* usage) const {
  JsonWriter json = Begin("chat.completion.chunk");
  json.Key("choices").BeginArray().BeginObject();
  json.Field("index", choice.index).Key("delta").BeginObject();
  json.Field("role", "assistant").Field("content", "").EndObject();
  json.NullField("logprobs").NullField("finish_reason");
  if (call_.return_token_ids && choice.prompt)
    WriteIds(json, "prompt_token_ids", *choice.prompt);
  json.EndObject().EndArray();
  WriteChunkUsage(json, usage);
  if (call_.return_token_ids && choice.prompt && choice.index == 0)
    WriteIds(json, "prompt_token_ids", *choice.prompt);
  json.EndObject();
  return json.Take();
}

std::string ResponseWriter::UsageChunk(const Usage& usage) const {
  JsonWriter json =
      Begin(is_chat() ? "chat.completion.chunk" : "text_completion");
  json.Key("choices").BeginArray().EndArray();
  WriteUsage(json, usage);
  json.EndObject();
  return json.Take();
}

}  // namespace tidepool::conductor
