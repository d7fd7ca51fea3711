#include "dataplane/conductor/output_processor.h"

#include <algorithm>
#include <utility>

namespace tidepool::conductor {
namespace {

// Enough of the prompt's end for a character that it leaves incomplete, and
// for the text to read as a continuation.
constexpr size_t kPromptTail = 32;

}  // namespace

std::string_view NameOf(Finish finish) {
  switch (finish) {
    case Finish::kStop:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kNone:
      break;
  }
  return "";
}

OutputProcessor::OutputProcessor(const model::Tokenizer* tokenizer,
                                 std::span<const int32_t> prompt,
                                 OutputOptions options)
    : options_(std::move(options)), matcher_(options_.stop) {
  if (!tokenizer) return;
  detokenizer_.emplace(*tokenizer, options_.skip_special_tokens);
  detokenizer_->Skip(
      prompt.subspan(prompt.size() - std::min(prompt.size(), kPromptTail)));
}

bool OutputProcessor::Take(std::string_view text, Delta& delta) {
  if (num_tokens_ <= options_.min_tokens && options_.min_tokens > 0) {
    delta.text += text;
    return true;
  }
  StopMatcher::Result result = matcher_.Append(text);
  delta.text += result.text;
  if (!result.stop) return true;
  if (options_.include_stop) delta.text += *result.stop;
  delta.finish = Finish::kStop;
  delta.stop_reason = *result.stop;
  return false;
}

OutputProcessor::Delta OutputProcessor::Append(
    std::span<const int32_t> tokens, Finish finish,
    std::optional<int32_t> stop_token_id) {
  Delta delta;
  for (const int32_t token : tokens) {
    ++delta.num_tokens;
    ++num_tokens_;
    if (!detokenizer_) continue;
    const bool ends_it =
        finish == Finish::kStop && delta.num_tokens == tokens.size();
    if (ends_it && !options_.include_stop) break;
    if (!Take(detokenizer_->Append(token), delta)) return delta;
  }
  if (finish == Finish::kNone) return delta;
  if (detokenizer_ && !Take(detokenizer_->Finish(), delta)) return delta;
  delta.text += matcher_.Release();
  delta.finish = finish;
  if (stop_token_id) delta.stop_reason = *stop_token_id;
  return delta;
}

}  // namespace tidepool::conductor
