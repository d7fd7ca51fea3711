#include "dataplane/conductor/serving_model.h"

#include <algorithm>
#include <utility>

#include "dataplane/base/clock.h"
#include "dataplane/conductor/api_error.h"
#include "dataplane/model/config.h"

namespace tidepool::conductor {
namespace {

// What OpenAI's API says, then what the model recommends.
worker::v1::SamplingParams DefaultsOf(
    const model::GenerationDefaults& recommended) {
  worker::v1::SamplingParams params;
  params.set_temperature(
      static_cast<float>(recommended.temperature.value_or(1.0)));
  params.set_top_p(static_cast<float>(recommended.top_p.value_or(1.0)));
  params.set_top_k(static_cast<int32_t>(recommended.top_k.value_or(0)));
  params.set_min_p(static_cast<float>(recommended.min_p.value_or(0.0)));
  params.set_repetition_penalty(
      static_cast<float>(recommended.repetition_penalty.value_or(1.0)));
  if (recommended.do_sample == false) params.set_temperature(0);
  params.set_logprobs(-1);
  params.set_prompt_logprobs(-1);
  return params;
}

// A folder without the file is a model without the part.
template <typename T>
StatusOr<std::optional<T>> IfFound(StatusOr<T> loaded) {
  if (loaded.ok()) return std::optional<T>(*std::move(loaded));
  if (loaded.status().code() == Code::kNotFound) return std::optional<T>();
  return std::move(loaded).status();
}

Status ContextExceeded(std::string_view param, int64_t max_model_len) {
  return WithApiDetails(
      InvalidArgument("the prompt is longer than this model's maximum context "
                      "length of {} tokens",
                      max_model_len),
      param, "context_length_exceeded");
}

}  // namespace

StatusOr<ServingModel> ServingModel::Load(const std::string& directory,
                                          std::vector<std::string> names,
                                          int64_t max_model_len) {
  Parts parts;
  ASSIGN_OR_RETURN(const model::ModelDescription description,
                   model::LoadModelDescription(directory));
  ASSIGN_OR_RETURN(
      auto tokenizer,
      IfFound(model::Tokenizer::Load(directory + "/tokenizer.json")));
  if (tokenizer) parts.tokenizer = *std::move(tokenizer);
  ASSIGN_OR_RETURN(parts.chat_template,
                   IfFound(model::ChatTemplate::FromModelFolder(directory)));
  const int64_t model_max = description.config.max_position_embeddings;
  if (max_model_len > model_max)
    return InvalidArgument(
        "--max-model-len {} is over the model's max_position_embeddings {}",
        max_model_len, model_max);
  parts.max_model_len = max_model_len > 0 ? max_model_len : model_max;
  parts.vocab_size = description.config.vocab_size;
  parts.sampling_defaults = DefaultsOf(description.generation);
  parts.names = std::move(names);
  if (parts.names.empty()) parts.names.push_back(directory);
  parts.created = static_cast<int64_t>(UnixSeconds());
  return ServingModel(std::move(parts));
}

Status ServingModel::CheckName(std::string_view name) const {
  if (std::ranges::find(parts_.names, name) != parts_.names.end())
    return OkStatus();
  return WithApiDetails(NotFound("the model `{}` does not exist", name),
                        "model", "model_not_found");
}

StatusOr<std::vector<int32_t>> ServingModel::Encode(
    std::string_view text, const model::EncodeOptions& options,
    std::string_view param) const {
  if (!parts_.tokenizer)
    return BadField(param, "must be token ids: this model has no tokenizer");
  StatusOr<std::vector<int32_t>> ids = parts_.tokenizer->Encode(text, options);
  if (!ids.ok() && ids.status().code() != Code::kResourceExhausted)
    return WithApiDetails(ids.status(), param, "");
  return ids;
}

StatusOr<std::vector<int32_t>> ServingModel::Tokenize(
    std::string_view text, bool add_special_tokens,
    std::string_view param) const {
  StatusOr<std::vector<int32_t>> ids =
      Encode(text, {.add_special_tokens = add_special_tokens}, param);
  // Without a limit on tokens, a pattern's match limit is left.
  if (ids.status().code() == Code::kResourceExhausted)
    return BadField(param, MessageOf(ids.status()));
  return ids;
}

StatusOr<std::vector<int32_t>> ServingModel::TokenizePrompt(
    std::string_view text, bool add_special_tokens,
    std::string_view param) const {
  StatusOr<std::vector<int32_t>> ids =
      Encode(text,
             {.add_special_tokens = add_special_tokens,
              .max_tokens = static_cast<size_t>(parts_.max_model_len)},
             param);
  if (ids.status().code() == Code::kResourceExhausted)
    return ContextExceeded(param, parts_.max_model_len);
  RETURN_IF_ERROR(ids.status());
  if (ids->empty()) return BadField(param, "must have at least one token");
  for (const int32_t id : *ids)
    if (id >= parts_.vocab_size)
      return BadField(param, fmt::format("has the token {} (id {}), which the "
                                         "model's vocabulary of {} lacks",
                                         parts_.tokenizer->IdToToken(id), id,
                                         parts_.vocab_size));
  return ids;
}

StatusOr<std::string> ServingModel::Render(const ChatPrompt& chat) const {
  if (!parts_.tokenizer)
    return BadField("messages",
                    "cannot be served: this model has no tokenizer");
  if (!parts_.chat_template)
    return BadField("messages",
                    "cannot be served: this model has no chat template");
  const auto context = parts_.chat_template->takes_content_parts()
                           ? chat.context
                           : JoinTextParts(*chat.context);
  StatusOr<std::string> text = parts_.chat_template->Render(
      *context, {.now_unix_seconds = UnixSeconds()});
  if (text.ok()) return text;
  return WithApiDetails(
      InvalidArgument("the chat template: {}", MessageOf(text.status())),
      "messages", "");
}

}  // namespace tidepool::conductor
