#include "dataplane/model/tokenizer_vocabulary.h"

#include <algorithm>

namespace tidepool::model::internal {
namespace {

// Puts the model's tokens at their ids; what is absent stays null.
StatusOr<std::vector<std::string_view>> PlaceModelTokens(
    const TokenizerSpec& spec) {
  int32_t max_id = -1;
  for (const auto& [token, id] : spec.model.vocabulary) {
    max_id = std::max(max_id, id);
  }
  for (const AddedToken& added : spec.added_tokens) {
    max_id = std::max(max_id, added.id);
  }
  std::vector<std::string_view> by_id(static_cast<size_t>(max_id) + 1);
  for (const auto& [token, id] : spec.model.vocabulary) {
    std::string_view& place = by_id[static_cast<size_t>(id)];
    if (place.data() != nullptr) {
      return InvalidArgument(
          "tokenizer.json: model.vocab: \"{}\" and \"{}\" both have id {}",
          place, token, id);
    }
    place = token;
  }
  return by_id;
}

Status CheckAddedToken(const AddedToken& added, std::string_view at_id,
                       bool in_model) {
  if (at_id.data() == nullptr || at_id == added.content) return OkStatus();
  return InvalidArgument(
      "tokenizer.json: {}: id {} of \"{}\" is that of \"{}\"",
      in_model ? "added_tokens, model.vocab" : "added_tokens", added.id,
      added.content, at_id);
}

}  // namespace

StatusOr<std::unique_ptr<Vocabulary>> Vocabulary::Build(
    const TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(std::vector<std::string_view> by_id, PlaceModelTokens(spec));
  auto vocabulary = std::make_unique<Vocabulary>();
  vocabulary->in_model_.resize(by_id.size());
  for (const auto& [token, id] : spec.model.vocabulary) {
    vocabulary->in_model_[static_cast<size_t>(id)] = true;
  }
  int32_t previous = -1;
  for (const AddedToken& added : spec.added_tokens) {
    if (added.id == previous) {
      return InvalidArgument("tokenizer.json: added_tokens: id {} twice",
                             added.id);
    }
    previous = added.id;
    std::string_view& place = by_id[static_cast<size_t>(added.id)];
    RETURN_IF_ERROR(
        CheckAddedToken(added, place, vocabulary->InModel(added.id)));
    place = added.content;
  }
  if (by_id.empty()) {
    return InvalidArgument("tokenizer.json: model.vocab: has no tokens");
  }
  size_t bytes = 0;
  for (const std::string_view token : by_id) bytes += token.size();
  vocabulary->tokens_.Reserve(by_id.size(), bytes);
  for (size_t id = 0; id < by_id.size(); ++id) {
    if (by_id[id].data() == nullptr) {
      return InvalidArgument(
          "tokenizer.json: model.vocab, added_tokens: no token has id {}, "
          "though {} is the greatest",
          id, by_id.size() - 1);
    }
    vocabulary->tokens_.Add(by_id[id]);
  }
  vocabulary->index_.emplace(vocabulary->tokens_, by_id.size());
  for (int32_t id = 0; id < vocabulary->size(); ++id) {
    if (vocabulary->index_->Add(id)) continue;
    const std::string_view token = by_id[static_cast<size_t>(id)];
    return InvalidArgument(
        "tokenizer.json: model.vocab, added_tokens: \"{}\" has the ids {} and "
        "{}",
        token, *vocabulary->Find(token), id);
  }
  return vocabulary;
}

}  // namespace tidepool::model::internal
