#include "dataplane/conductor/prepared_call.h"

#include <algorithm>
#include <utility>

#include "dataplane/conductor/api_error.h"

namespace tidepool::conductor {
namespace {

constexpr int64_t kCompletionTokensDefault = 16;

Status CheckTextFeatures(const GenerationCall& call,
                         const ServingModel& model) {
  if (model.tokenizer()) return OkStatus();
  if (!call.stop.empty())
    return BadField("stop", "cannot be served: this model has no tokenizer");
  if (call.echo)
    return BadField("echo", "cannot be served: this model has no tokenizer");
  return OkStatus();
}

StatusOr<std::vector<int32_t>> TokensOf(Prompt& prompt,
                                        const GenerationCall& call,
                                        const ServingModel& model) {
  if (auto* ids = std::get_if<std::vector<int32_t>>(&prompt))
    return std::move(*ids);
  return model.TokenizePrompt(std::get<std::string>(prompt),
                              call.add_special_tokens, "prompt");
}

// The most tokens that every prompt leaves room for; the caller's wish if it
// fits.
StatusOr<int64_t> MaxTokensOf(const PreparedCall& prepared,
                              const ServingModel& model) {
  const GenerationCall& call = prepared.call;
  const bool is_chat = call.kind == GenerationCall::Kind::kChat;
  const char* const param = is_chat ? "messages" : "prompt";
  const auto longest = static_cast<int64_t>(
      std::ranges::max(prepared.prompts, {}, &std::vector<int32_t>::size)
          .size());
  const int64_t room = model.max_model_len() - longest;
  const int64_t wanted = std::max<int64_t>(
      call.max_tokens.value_or(is_chat ? room : kCompletionTokensDefault), 1);
  if (room < 1 || (call.max_tokens && wanted > room))
    return WithApiDetails(
        InvalidArgument(
            "this model's maximum context length is {} tokens, but {} were "
            "requested: {} in the prompt and {} in the completion",
            model.max_model_len(), longest + wanted, longest, wanted),
        room < 1 ? param : "max_tokens", "context_length_exceeded");
  return std::min(wanted, room);
}

}  // namespace

StatusOr<PreparedCall> Prepare(GenerationCall call, const ServingModel& model) {
  PreparedCall prepared;
  prepared.call = std::move(call);
  GenerationCall& own = prepared.call;
  RETURN_IF_ERROR(CheckTextFeatures(own, model));
  // Ids are all that such a model can answer with.
  if (!model.tokenizer()) own.return_token_ids = true;
  if (own.kind == GenerationCall::Kind::kChat) {
    ASSIGN_OR_RETURN(const std::string text, model.Render(own.chat));
    ASSIGN_OR_RETURN(
        prepared.prompts.emplace_back(),
        model.TokenizePrompt(text, own.add_special_tokens, "messages"));
    own.chat.context.reset();
  }
  for (Prompt& prompt : own.prompts) {
    ASSIGN_OR_RETURN(prepared.prompts.emplace_back(),
                     TokensOf(prompt, own, model));
    if (!own.echo) continue;
    auto* text = std::get_if<std::string>(&prompt);
    prepared.echo_texts.push_back(
        text ? std::move(*text)
             : model.tokenizer()->Decode(prepared.prompts.back(),
                                         own.skip_special_tokens));
  }
  own.prompts.clear();
  ASSIGN_OR_RETURN(const int64_t max_tokens, MaxTokensOf(prepared, model));
  own.sampling.set_max_tokens(static_cast<int32_t>(max_tokens));
  own.sampling.set_min_tokens(
      std::min(own.sampling.min_tokens(), own.sampling.max_tokens()));
  return prepared;
}

}  // namespace tidepool::conductor
