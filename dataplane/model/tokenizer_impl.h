// The parts of a tokenizer, put together.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dataplane/base/digest.h"
#include "dataplane/base/status.h"
#include "dataplane/model/bpe.h"
#include "dataplane/model/detokenizer_stages.h"
#include "dataplane/model/pretokenizer.h"
#include "dataplane/model/tokenizer.h"
#include "dataplane/model/tokenizer_added.h"
#include "dataplane/model/tokenizer_normalizer.h"
#include "dataplane/model/tokenizer_vocabulary.h"

namespace tidepool::model::internal {

// Immutable (but for the cache of words) and thread-safe.
class TokenizerImpl {
 public:
  static StatusOr<std::unique_ptr<const TokenizerImpl>> Create(
      std::string_view json);

  StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                        const EncodeOptions& options) const;
  std::string Decode(std::span<const int32_t> ids,
                     bool skip_special_tokens) const;

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const std::vector<AddedToken>& added_tokens() const { return added_tokens_; }
  const Sha256Digest& digest() const { return digest_; }
  bool IsSpecial(int32_t id) const {
    return vocabulary_->Contains(id) && special_[static_cast<size_t>(id)];
  }

  // What decoding works on; both are for ids that have a token.
  const DecoderSteps& decoder() const { return decoder_; }
  bool decodes_bytes() const { return decodes_bytes_; }
  std::string_view BytesOf(int32_t id) const {
    return bytes_[static_cast<size_t>(id)];
  }
  // The token as the first decoder step takes it.
  std::string_view DecoderInput(int32_t id) const {
    return decoder_inputs_[static_cast<size_t>(id)];
  }
  bool IsSkipped(int32_t id) const { return skipped_[static_cast<size_t>(id)]; }

 private:
  TokenizerImpl() = default;
  Status BuildAddedTokens();
  Status CheckTemplate() const;
  // `normalized`: of each added token; `special`: the contents of those.
  void BuildDecoding(const std::vector<std::string>& normalized,
                     const std::set<std::string_view>& special);
  Status EncodeText(std::string_view text, const EncodeOptions& options,
                    IdBuffer& out) const;
  Status EncodeSection(const Piece& section, const EncodeOptions& options,
                       IdBuffer& out) const;
  Status EncodeWords(const Piece& piece, size_t max_tokens,
                     IdBuffer& out) const;

  Sha256Digest digest_;
  std::unique_ptr<Vocabulary> vocabulary_;
  std::vector<AddedToken> added_tokens_;
  AddedTokenFinder added_in_text_;
  AddedTokenFinder added_in_normalized_;
  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<Pretokenizer> pretokenizer_;
  std::unique_ptr<BpeModel> model_;
  std::vector<int32_t> prefix_ids_;
  std::vector<int32_t> suffix_ids_;
  DecoderSteps decoder_;
  bool decodes_bytes_ = false;
  StringTable bytes_;
  StringTable decoder_inputs_;
  std::vector<bool> special_;
  std::vector<bool> skipped_;  // by decoding without special tokens
};

}  // namespace tidepool::model::internal
