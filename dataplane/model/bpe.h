// Byte pair encoding: words to token ids.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/model/bpe_cache.h"
#include "dataplane/model/bpe_merge_table.h"
#include "dataplane/model/bpe_piece.h"
#include "dataplane/model/bpe_vocabulary.h"
#include "dataplane/model/tokenizer_spec.h"
#include "dataplane/model/tokenizer_vocabulary.h"

namespace tidepool::model::internal {

// Ids under construction: a vector that gives out room at its end.
class IdBuffer {
 public:
  // At least `count` ids may be written at the result, then Advance.
  int32_t* Room(size_t count) {
    if (capacity_ - size_ < count) Grow(count);
    return ids_.get() + size_;
  }
  void Advance(size_t count) { size_ += count; }
  void Push(int32_t id) {
    *Room(1) = id;
    ++size_;
  }
  void Append(std::span<const int32_t> ids);

  size_t size() const { return size_; }
  std::span<int32_t> From(size_t start) {
    return {ids_.get() + start, size_ - start};
  }
  void Truncate(size_t size) { size_ = size; }

 private:
  void Grow(size_t count);

  std::unique_ptr<int32_t[]> ids_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// How the words that Encode sees relate to the vocabulary.
enum class WordForm {
  kText,   // as they are
  kBytes,  // any bytes; the vocabulary spells them in ByteLevel's alphabet
};

// Thread-safe.
class BpeModel {
 public:
  // Errors: kInvalidArgument for merges of unknown or empty tokens, merges
  // given twice, an unknown unk_token.
  static StatusOr<std::unique_ptr<BpeModel>> Create(
      const BpeSpec& spec, const Vocabulary& vocabulary, WordForm form);

  // Appends the tokens of `words`, at most kPieceBatch and none of them empty.
  void Encode(std::span<const Piece> words, IdBuffer& out) const;

 private:
  // What one byte (kBytes) or character (kText) is before merging.
  struct Unit {
    std::array<int32_t, 4> ids{};
    uint8_t count = 0;  // 0: unknown
    bool fallback = false;
  };

  BpeModel(const BpeSpec& spec, const Vocabulary& vocabulary, WordForm form);
  void BuildWords(const Vocabulary& vocabulary);
  Status BuildMerges(const BpeSpec& spec, const Vocabulary& vocabulary);
  void BuildUnits();
  // True if no merge joins something with a metaspace on its right, so that
  // words may be cut before metaspaces without changing any token.
  bool MetaspaceStartsWords(const BpeSpec& spec) const;

  Unit ResolveUnit(std::string_view spelling) const;
  void EncodeBatch(std::span<const Piece> words, IdBuffer& out) const;
  void EncodeByKey(const CacheKey& key, std::string_view word,
                   IdBuffer& out) const;
  void EncodeUncached(std::string_view word, IdBuffer& out) const;
  // Appends the tokens of the single bytes or characters.
  void AppendUnits(std::string_view word, IdBuffer& out) const;

  const WordForm form_;
  const bool ignore_merges_;
  const bool byte_fallback_;
  const bool fuse_unk_;
  std::optional<int32_t> unk_id_;
  StringTable words_;  // by id, as Encode sees them
  StringIndex word_index_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_tokens_;  // "<0x00>"…, -1: none
  std::array<Unit, 256> units_;           // of bytes, or of ASCII characters
  bool units_plain_ = false;              // every byte is one token
  bool cut_at_metaspaces_ = false;
  // A cache does not change what the model is.
  mutable WordCache cache_;
};

}  // namespace tidepool::model::internal
