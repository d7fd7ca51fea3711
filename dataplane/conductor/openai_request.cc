#include "dataplane/conductor/openai_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <utility>

#include "dataplane/conductor/request_fields.h"

namespace tidepool::conductor {
namespace internal {

namespace dom = simdjson::dom;

namespace {

constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();
constexpr int64_t kLogprobsMax = 20;
constexpr int64_t kChoicesOfPromptMax = 128;
constexpr size_t kStopStringsMax = 16;
constexpr size_t kStopBytesMax = 1024;
constexpr size_t kStopIdsMax = 256;
constexpr size_t kLogitBiasMax = 1024;
constexpr size_t kNameBytesMax = 512;
constexpr double kPositiveMin = std::numeric_limits<float>::min();

// Reads one number into a field of the sampling parameters.
template <void (worker::v1::SamplingParams::*kSet)(float)>
Status SetNumber(const JsonField& field, CallFields& fields, double min,
                 double max) {
  ASSIGN_OR_RETURN(const double value, field.Number(min, max));
  (fields.call.sampling.*kSet)(static_cast<float>(value));
  return OkStatus();
}

template <typename T>
Status Store(const JsonField& field, int64_t min, int64_t max,
             std::optional<T>& target) {
  ASSIGN_OR_RETURN(const int64_t value, field.Int(min, max));
  target = static_cast<T>(value);
  return OkStatus();
}

Status Store(const JsonField& field, bool& target) {
  ASSIGN_OR_RETURN(target, field.Bool());
  return OkStatus();
}

Status ReadStop(const JsonField& field, CallFields& fields) {
  std::vector<JsonField> entries{field};
  if (!field.is_string()) {
    ASSIGN_OR_RETURN(entries, field.Array(kStopStringsMax));
  }
  for (const JsonField& entry : entries) {
    ASSIGN_OR_RETURN(std::string text, entry.String(kStopBytesMax));
    if (text.empty()) return entry.Bad("must not be empty");
    fields.call.stop.push_back(std::move(text));
  }
  return OkStatus();
}

Status ReadLogitBias(const JsonField& field, CallFields& fields) {
  ASSIGN_OR_RETURN(const dom::object object, field.Object());
  if (object.size() > kLogitBiasMax)
    return field.Bad(
        fmt::format("must have at most {} entries", kLogitBiasMax));
  std::set<int32_t> seen;
  for (const auto& [key, value] : object) {
    int32_t token = -1;
    const auto [end, error] =
        std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0 ||
        token >= fields.limits->vocab_size)
      return field.Bad(
          fmt::format("has key `{}`, which is no token id from 0 to {}",
                      Excerpt(key, 32), fields.limits->vocab_size - 1));
    const JsonField bias(fmt::format("{}.{}", field.path(), token), value);
    if (!seen.insert(token).second) return bias.Bad("is given twice");
    ASSIGN_OR_RETURN(const double number, bias.Number(-100, 100));
    auto* entry = fields.call.sampling.add_logit_bias();
    entry->set_token(token);
    entry->set_bias(static_cast<float>(number));
  }
  return OkStatus();
}

Status ReadStreamOptions(const JsonField& field, CallFields& fields) {
  static constexpr std::array<CallRule, 3> kRules{{
      {"include_usage",
       [](const JsonField& f, CallFields& t) {
         return Store(f, t.call.include_usage);
       }},
      {"continuous_usage_stats",
       [](const JsonField& f, CallFields& t) {
         return Store(f, t.call.continuous_usage_stats);
       }},
      // Padding against guessing lengths on the wire: nothing to answer.
      {"include_obfuscation", Ignore<CallFields>},
  }};
  fields.has_stream_options = true;
  ASSIGN_OR_RETURN(const dom::object object, field.Object());
  return ReadFields(object, field.path() + ".", kRules, fields);
}

Status ReadResponseFormat(const JsonField& field, CallFields&) {
  ASSIGN_OR_RETURN(const dom::object object, field.Object());
  std::string_view type;
  if (object["type"].get(type) != simdjson::SUCCESS)
    return field.Bad("must have a `type`");
  if (type != "text")
    return UnsupportedField("response_format.type", "only `text` is");
  return OkStatus();
}

Status ReadStopTokenIds(const JsonField& field, CallFields& fields) {
  ASSIGN_OR_RETURN(const std::vector<JsonField> entries,
                   field.Array(kStopIdsMax));
  for (const JsonField& entry : entries) {
    ASSIGN_OR_RETURN(const int64_t id,
                     entry.Int(0, fields.limits->vocab_size - 1));
    fields.call.sampling.add_stop_token_ids(static_cast<int32_t>(id));
  }
  return OkStatus();
}

Status ReadTopK(const JsonField& field, CallFields& fields) {
  ASSIGN_OR_RETURN(const int64_t value, field.Int(-1, kIntMax));
  fields.call.sampling.set_top_k(value < 0 || value >= fields.limits->vocab_size
                                     ? 0
                                     : static_cast<int32_t>(value));
  return OkStatus();
}

Status ReadMinTokens(const JsonField& field, CallFields& fields) {
  ASSIGN_OR_RETURN(const int64_t value, field.Int(0, kIntMax));
  fields.call.sampling.set_min_tokens(static_cast<int32_t>(value));
  return OkStatus();
}

Status ReadSeed(const JsonField& field, CallFields& fields) {
  ASSIGN_OR_RETURN(const int64_t value,
                   field.Int(std::numeric_limits<int64_t>::min(),
                             std::numeric_limits<int64_t>::max()));
  fields.call.seed = static_cast<uint64_t>(value);
  return OkStatus();
}

// A field whose only accepted value leaves things as they are.
template <bool kAccepted>
Status OnlyBool(const JsonField& field, CallFields&) {
  ASSIGN_OR_RETURN(const bool value, field.Bool());
  if (value == kAccepted) return OkStatus();
  return UnsupportedField(field.path(),
                          kAccepted ? "only `true` is" : "only `false` is");
}
template <int kAccepted>
Status OnlyNumber(const JsonField& field, CallFields&) {
  ASSIGN_OR_RETURN(const double value, field.Number(-1e9, 1e9));
  if (value == kAccepted) return OkStatus();
  return UnsupportedField(field.path(), fmt::format("only {} is", kAccepted));
}

Status Unsupported(const JsonField& field, CallFields&) {
  return UnsupportedField(field.path(), "this server has no such feature");
}

Status ReadModel(const JsonField& field, CallFields& fields) {
  ASSIGN_OR_RETURN(fields.call.model, field.String(kNameBytesMax));
  return OkStatus();
}
Status ReadCacheSalt(const JsonField& field, CallFields& fields) {
  ASSIGN_OR_RETURN(fields.call.cache_salt, field.String(kNameBytesMax));
  if (fields.call.cache_salt.empty()) return field.Bad("must not be empty");
  return OkStatus();
}

using Sampling = worker::v1::SamplingParams;
#define FIELDS const JsonField &f, CallFields &t

}  // namespace

constinit const std::array<CallRule, 45> kCommonRules{{
    {"model", ReadModel},
    {"temperature",
     [](FIELDS) { return SetNumber<&Sampling::set_temperature>(f, t, 0, 2); }},
    {"top_p",
     [](FIELDS) {
       return SetNumber<&Sampling::set_top_p>(f, t, kPositiveMin, 1);
     }},
    {"min_p",
     [](FIELDS) { return SetNumber<&Sampling::set_min_p>(f, t, 0, 1); }},
    {"repetition_penalty",
     [](FIELDS) {
       return SetNumber<&Sampling::set_repetition_penalty>(f, t, kPositiveMin,
                                                           100);
     }},
    {"presence_penalty",
     [](FIELDS) {
       return SetNumber<&Sampling::set_presence_penalty>(f, t, -2, 2);
     }},
    {"frequency_penalty",
     [](FIELDS) {
       return SetNumber<&Sampling::set_frequency_penalty>(f, t, -2, 2);
     }},
    {"top_k", ReadTopK},
    {"logit_bias", ReadLogitBias},
    {"seed", ReadSeed},
    {"n",
     [](FIELDS) -> Status {
       ASSIGN_OR_RETURN(const int64_t n, f.Int(1, kChoicesOfPromptMax));
       t.call.n = static_cast<int32_t>(n);
       return OkStatus();
     }},
    {"max_tokens",
     [](FIELDS) { return Store(f, 0, kIntMax, t.call.max_tokens); }},
    {"min_tokens", ReadMinTokens},
    {"stop", ReadStop},
    {"stop_token_ids", ReadStopTokenIds},
    {"ignore_eos",
     [](FIELDS) -> Status {
       ASSIGN_OR_RETURN(const bool ignore, f.Bool());
       t.call.sampling.set_ignore_eos(ignore);
       return OkStatus();
     }},
    {"stream", [](FIELDS) { return Store(f, t.call.stream); }},
    {"stream_options", ReadStreamOptions},
    {"echo", [](FIELDS) { return Store(f, t.call.echo); }},
    {"prompt_logprobs",
     [](FIELDS) { return Store(f, 0, kLogprobsMax, t.call.prompt_logprobs); }},
    {"return_token_ids",
     [](FIELDS) { return Store(f, t.call.return_token_ids); }},
    {"return_tokens_as_token_ids",
     [](FIELDS) { return Store(f, t.call.return_tokens_as_token_ids); }},
    {"skip_special_tokens",
     [](FIELDS) { return Store(f, t.call.skip_special_tokens); }},
    {"include_stop_str_in_output",
     [](FIELDS) { return Store(f, t.call.include_stop_str_in_output); }},
    {"add_special_tokens",
     [](FIELDS) { return Store(f, t.call.add_special_tokens); }},
    {"cache_salt", ReadCacheSalt},
    {"response_format", ReadResponseFormat},
    // Of no consequence for the answer.
    {"user", Ignore<CallFields>},
    {"metadata", Ignore<CallFields>},
    {"service_tier", Ignore<CallFields>},
    {"safety_identifier", Ignore<CallFields>},
    {"prompt_cache_key", Ignore<CallFields>},
    {"prompt_cache_retention", Ignore<CallFields>},
    {"spaces_between_special_tokens", Ignore<CallFields>},
    {"request_id", Ignore<CallFields>},
    // Accepted as long as they ask for nothing.
    {"best_of",
     [](FIELDS) { return Store(f, 1, kChoicesOfPromptMax, t.best_of); }},
    {"use_beam_search", OnlyBool<false>},
    {"length_penalty", OnlyNumber<1>},
    {"priority", OnlyNumber<0>},
    // Refused by name.
    {"truncate_prompt_tokens", Unsupported},
    {"allowed_token_ids", Unsupported},
    {"bad_words", Unsupported},
    {"structured_outputs", Unsupported},
    {"prompt_embeds", Unsupported},
    {"kv_transfer_params", Unsupported},
}};

namespace {

Status ReadPrompt(const JsonField& field, CallFields& fields) {
  const auto read_one = [&](const JsonField& one) -> Status {
    if (one.is_string()) {
      ASSIGN_OR_RETURN(std::string text,
                       one.String(std::numeric_limits<size_t>::max()));
      fields.call.prompts.emplace_back(std::move(text));
      return OkStatus();
    }
    ASSIGN_OR_RETURN(
        std::vector<int32_t> ids,
        one.TokenIds(fields.limits->vocab_size,
                     static_cast<size_t>(fields.limits->max_model_len)));
    if (ids.empty()) return one.Bad("must not be empty");
    fields.call.prompts.emplace_back(std::move(ids));
    return OkStatus();
  };
  if (field.is_string()) return read_one(field);
  dom::array array;
  if (field.value().get(array) != simdjson::SUCCESS)
    return field.Bad(
        "must be a string, a list of strings, a list of token ids or a list "
        "of lists of token ids");
  if (array.size() == 0) return field.Bad("must not be empty");
  const dom::element first = *array.begin();
  if (!first.is_string() && !first.is_array()) return read_one(field);
  ASSIGN_OR_RETURN(
      const std::vector<JsonField> prompts,
      field.Array(static_cast<size_t>(fields.limits->choices_max)));
  for (const JsonField& prompt : prompts) RETURN_IF_ERROR(read_one(prompt));
  return OkStatus();
}

Status ReadSuffix(const JsonField& field, CallFields&) {
  ASSIGN_OR_RETURN(const std::string suffix, field.String(kIntMax));
  if (suffix.empty()) return OkStatus();
  return UnsupportedField("suffix", "insertion is not served");
}

constexpr std::array<CallRule, 3> kCompletionOnlyRules{{
    {"prompt", ReadPrompt},
    {"suffix", ReadSuffix},
    {"logprobs",
     [](FIELDS) { return Store(f, 0, kLogprobsMax, t.call.logprobs); }},
}};

Status ReadModalities(const JsonField& field, CallFields&) {
  ASSIGN_OR_RETURN(const std::vector<JsonField> entries, field.Array(8));
  for (const JsonField& entry : entries) {
    ASSIGN_OR_RETURN(const std::string modality, entry.String(kNameBytesMax));
    if (modality != "text")
      return UnsupportedField("modalities", "only text is");
  }
  return OkStatus();
}

Status ReadReasoningEffort(const JsonField& field, CallFields& fields) {
  ASSIGN_OR_RETURN(fields.chat.reasoning_effort, field.String(kNameBytesMax));
  return OkStatus();
}

constexpr std::array<CallRule, 26> kChatOnlyRules{{
    {"messages", [](FIELDS) { return ReadMessages(f, t.chat); }},
    {"tools", [](FIELDS) { return ReadTools(f, t.chat); }},
    {"tool_choice", [](FIELDS) { return ReadToolChoice(f, t.chat); }},
    {"documents", [](FIELDS) { return ReadDocuments(f, t.chat); }},
    {"chat_template_kwargs",
     [](FIELDS) { return ReadTemplateKwargs(f, t.chat); }},
    {"add_generation_prompt",
     [](FIELDS) { return Store(f, t.chat.add_generation_prompt); }},
    {"reasoning_effort", ReadReasoningEffort},
    {"logprobs", [](FIELDS) { return Store(f, t.chat_logprobs); }},
    {"top_logprobs",
     [](FIELDS) { return Store(f, 0, kLogprobsMax, t.top_logprobs); }},
    {"max_completion_tokens",
     [](FIELDS) { return Store(f, 1, kIntMax, t.max_completion_tokens); }},
    {"modalities", ReadModalities},
    {"verbosity", Ignore<CallFields>},
    {"parallel_tool_calls", Ignore<CallFields>},
    {"include_reasoning", Ignore<CallFields>},
    {"store", OnlyBool<false>},
    {"continue_final_message", OnlyBool<false>},
    {"audio", Unsupported},
    {"prediction", Unsupported},
    {"web_search_options", Unsupported},
    {"functions", Unsupported},
    {"function_call", Unsupported},
    {"chat_template", Unsupported},
    {"mm_processor_kwargs", Unsupported},
    {"media_io_kwargs", Unsupported},
    {"moderation", Unsupported},
    {"vllm_xargs", Unsupported},
}};
#undef FIELDS

}  // namespace

StatusOr<GenerationCall> FinishCall(CallFields fields) {
  GenerationCall& call = fields.call;
  if (call.model.empty()) return BadField("model", "is required");
  if (fields.has_stream_options && !call.stream)
    return BadField("stream_options", "is only allowed with `stream`: true");
  if (fields.best_of && *fields.best_of != call.n)
    return UnsupportedField("best_of", "only the value of `n` is");
  if (fields.max_completion_tokens)
    call.max_tokens = fields.max_completion_tokens;
  if (call.max_tokens == 0 && !call.echo)
    return BadField("max_tokens", "must be at least 1 (0 only with `echo`)");
  const int64_t tokens_max =
      call.max_tokens.value_or(call.kind == GenerationCall::Kind::kCompletion
                                   ? 16
                                   : fields.limits->max_model_len);
  if (call.sampling.min_tokens() > tokens_max)
    return BadField("min_tokens", fmt::format("must be at most `max_tokens`, "
                                              "here {}",
                                              tokens_max));
  if (call.prompt_logprobs && call.stream)
    return UnsupportedField("prompt_logprobs", "not with `stream`: true");
  // An echoed prompt has the log probabilities that the output has.
  const int32_t echoed = call.echo ? call.logprobs.value_or(-1) : -1;
  call.sampling.set_prompt_logprobs(
      std::max(call.prompt_logprobs.value_or(-1), echoed));
  call.sampling.set_logprobs(call.logprobs.value_or(-1));
  return std::move(call);
}

}  // namespace internal

namespace {

internal::CallFields NewCall(GenerationCall::Kind kind,
                             const RequestLimits& limits,
                             const worker::v1::SamplingParams& defaults) {
  internal::CallFields fields;
  fields.limits = &limits;
  fields.call.kind = kind;
  fields.call.sampling = defaults;
  fields.call.sampling.set_logprobs(-1);
  fields.call.sampling.set_prompt_logprobs(-1);
  return fields;
}

}  // namespace

StatusOr<GenerationCall> ParseCompletion(
    std::string_view body, const RequestLimits& limits,
    const worker::v1::SamplingParams& defaults) {
  static const auto rules =
      internal::Join(internal::kCommonRules, internal::kCompletionOnlyRules);
  JsonBody json;
  RETURN_IF_ERROR(json.Parse(body));
  ASSIGN_OR_RETURN(const simdjson::dom::object object, json.Object());
  internal::CallFields fields =
      NewCall(GenerationCall::Kind::kCompletion, limits, defaults);
  RETURN_IF_ERROR(ReadFields(object, "", rules, fields));
  if (fields.call.prompts.empty()) return BadField("prompt", "is required");
  const auto choices =
      static_cast<int64_t>(fields.call.prompts.size()) * int64_t{fields.call.n};
  if (choices > limits.choices_max)
    return BadField("n", fmt::format("times the number of prompts is {}, over "
                                     "the limit of {}",
                                     choices, limits.choices_max));
  return internal::FinishCall(std::move(fields));
}

StatusOr<GenerationCall> ParseChat(std::string_view body,
                                   const RequestLimits& limits,
                                   const worker::v1::SamplingParams& defaults) {
  static const auto rules =
      internal::Join(internal::kCommonRules, internal::kChatOnlyRules);
  JsonBody json;
  RETURN_IF_ERROR(json.Parse(body));
  ASSIGN_OR_RETURN(const simdjson::dom::object object, json.Object());
  internal::CallFields fields =
      NewCall(GenerationCall::Kind::kChat, limits, defaults);
  fields.call.add_special_tokens = false;
  RETURN_IF_ERROR(ReadFields(object, "", rules, fields));
  ASSIGN_OR_RETURN(fields.call.chat, fields.chat.Build());
  if (fields.top_logprobs && !fields.chat_logprobs)
    return BadField("top_logprobs", "needs `logprobs`: true");
  if (fields.chat_logprobs)
    fields.call.logprobs = fields.top_logprobs.value_or(0);
  if (fields.call.echo)
    return UnsupportedField("echo", "only in /v1/completions it is");
  return internal::FinishCall(std::move(fields));
}

}  // namespace tidepool::conductor
