#include "dataplane/model/detokenizer.h"

#include <utility>

#include "dataplane/model/detokenizer_stages.h"
#include "dataplane/model/tokenizer_impl.h"

namespace tidepool::model {

struct IncrementalDetokenizer::State {
  State(const internal::TokenizerImpl& impl, bool skip_special)
      : tokenizer(impl),
        skip_special_tokens(skip_special),
        pipeline(impl.decoder(), impl.decodes_bytes(), text) {}

  void Put(int32_t id) {
    if (!tokenizer.vocabulary().Contains(id)) return;
    if (skip_special_tokens && tokenizer.IsSkipped(id)) return;
    pipeline.Put(tokenizer.decodes_bytes() ? tokenizer.BytesOf(id)
                                           : tokenizer.DecoderInput(id));
  }

  const internal::TokenizerImpl& tokenizer;
  const bool skip_special_tokens;
  std::string text;  // certain, not yet returned
  internal::DecoderPipeline pipeline;
};

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer,
                                               bool skip_special_tokens)
    : state_(std::make_unique<State>(*tokenizer.impl_, skip_special_tokens)) {}

IncrementalDetokenizer::~IncrementalDetokenizer() = default;
IncrementalDetokenizer::IncrementalDetokenizer(
    IncrementalDetokenizer&&) noexcept = default;
IncrementalDetokenizer& IncrementalDetokenizer::operator=(
    IncrementalDetokenizer&&) noexcept = default;

void IncrementalDetokenizer::Skip(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    state_->Put(id);
    state_->text.clear();
  }
}

std::string IncrementalDetokenizer::Append(int32_t id) {
  state_->Put(id);
  return std::exchange(state_->text, std::string());
}

std::string IncrementalDetokenizer::Finish() {
  state_->pipeline.Finish();
  return std::exchange(state_->text, std::string());
}

}  // namespace tidepool::model
