// All tokens of a file, those of the model and those added to it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/model/bpe_vocabulary.h"
#include "dataplane/model/tokenizer_spec.h"

namespace tidepool::model::internal {

// Immutable and thread-safe after building.
class Vocabulary {
 public:
  // Errors: kInvalidArgument if an id or a token is there twice, or an id
  // between 0 and the greatest is missing.
  static StatusOr<std::unique_ptr<Vocabulary>> Build(const TokenizerSpec& spec);

  // Of tokens by id.
  const StringTable& tokens() const { return tokens_; }
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  bool Contains(int32_t id) const { return id >= 0 && id < size(); }
  std::optional<int32_t> Find(std::string_view token) const {
    return index_->Find(token);
  }
  // BPE knows only the model's tokens.
  bool InModel(int32_t id) const { return in_model_[static_cast<size_t>(id)]; }

 private:
  StringTable tokens_;
  std::optional<StringIndex> index_;
  std::vector<bool> in_model_;
};

}  // namespace tidepool::model::internal
