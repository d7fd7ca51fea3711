#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "dataplane/conductor/openai_request.h"
#include "dataplane/conductor/request_fields.h"

namespace tidepool::conductor {
namespace {

using internal::ChatFields;

constexpr size_t kNameBytesMax = 512;

struct TokenizeFields {
  TokenizeCall call;
  ChatFields chat;
  bool has_prompt = false;
  std::optional<bool> add_special_tokens;
};

using TokenizeRule = FieldRule<TokenizeFields>;

constexpr std::array<TokenizeRule, 11> kTokenizeRules{{
    {"model",
     [](const JsonField& f, TokenizeFields& t) -> Status {
       ASSIGN_OR_RETURN(t.call.model, f.String(kNameBytesMax));
       return OkStatus();
     }},
    {"prompt",
     [](const JsonField& f, TokenizeFields& t) -> Status {
       ASSIGN_OR_RETURN(t.call.prompt,
                        f.String(std::numeric_limits<size_t>::max()));
       t.has_prompt = true;
       return OkStatus();
     }},
    {"add_special_tokens",
     [](const JsonField& f, TokenizeFields& t) -> Status {
       ASSIGN_OR_RETURN(t.add_special_tokens, f.Bool());
       return OkStatus();
     }},
    {"return_token_strs",
     [](const JsonField& f, TokenizeFields& t) -> Status {
       ASSIGN_OR_RETURN(t.call.return_token_strs, f.Bool());
       return OkStatus();
     }},
    {"messages",
     [](const JsonField& f, TokenizeFields& t) {
       return internal::ReadMessages(f, t.chat);
     }},
    {"tools", [](const JsonField& f,
                 TokenizeFields& t) { return internal::ReadTools(f, t.chat); }},
    {"chat_template_kwargs",
     [](const JsonField& f, TokenizeFields& t) {
       return internal::ReadTemplateKwargs(f, t.chat);
     }},
    {"add_generation_prompt",
     [](const JsonField& f, TokenizeFields& t) -> Status {
       ASSIGN_OR_RETURN(t.chat.add_generation_prompt, f.Bool());
       return OkStatus();
     }},
    {"continue_final_message",
     [](const JsonField& f, TokenizeFields&) -> Status {
       ASSIGN_OR_RETURN(const bool value, f.Bool());
       return value ? UnsupportedField(f.path(), "only `false` is")
                    : OkStatus();
     }},
    {"chat_template",
     [](const JsonField& f, TokenizeFields&) {
       return UnsupportedField(f.path(), "this server has no such feature");
     }},
    {"mm_processor_kwargs",
     [](const JsonField& f, TokenizeFields&) {
       return UnsupportedField(f.path(), "this server has no such feature");
     }},
}};

struct DetokenizeFields {
  DetokenizeCall call;
  int64_t vocab_size = 0;
  bool has_tokens = false;
};

constexpr size_t kDetokenizeTokensMax = 1 << 20;

constexpr std::array<FieldRule<DetokenizeFields>, 2> kDetokenizeRules{{
    {"model",
     [](const JsonField& f, DetokenizeFields& t) -> Status {
       ASSIGN_OR_RETURN(t.call.model, f.String(kNameBytesMax));
       return OkStatus();
     }},
    {"tokens",
     [](const JsonField& f, DetokenizeFields& t) -> Status {
       ASSIGN_OR_RETURN(t.call.tokens,
                        f.TokenIds(t.vocab_size, kDetokenizeTokensMax));
       t.has_tokens = true;
       return OkStatus();
     }},
}};

}  // namespace

StatusOr<TokenizeCall> ParseTokenize(std::string_view body) {
  JsonBody json;
  RETURN_IF_ERROR(json.Parse(body));
  ASSIGN_OR_RETURN(const simdjson::dom::object object, json.Object());
  TokenizeFields fields;
  RETURN_IF_ERROR(ReadFields(object, "", kTokenizeRules, fields));
  TokenizeCall& call = fields.call;
  call.is_chat = fields.chat.messages != nullptr;
  if (call.is_chat == fields.has_prompt)
    return BadField("prompt", "or `messages` is required, not both");
  if (call.is_chat) {
    ASSIGN_OR_RETURN(call.chat, fields.chat.Build());
  }
  call.add_special_tokens = fields.add_special_tokens.value_or(!call.is_chat);
  return std::move(call);
}

StatusOr<DetokenizeCall> ParseDetokenize(std::string_view body,
                                         int64_t vocab_size) {
  JsonBody json;
  RETURN_IF_ERROR(json.Parse(body));
  ASSIGN_OR_RETURN(const simdjson::dom::object object, json.Object());
  DetokenizeFields fields{.vocab_size = vocab_size};
  RETURN_IF_ERROR(ReadFields(object, "", kDetokenizeRules, fields));
  if (!fields.has_tokens) return BadField("tokens", "is required");
  return std::move(fields.call);
}

}  // namespace tidepool::conductor
