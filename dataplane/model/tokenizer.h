// Text to token ids and back, from a Hugging Face `tokenizer.json`.
//
// Supported: byte-level BPE (GPT-2, Llama 3, Qwen) and SentencePiece-style BPE
// with byte fallback (Llama 2), with ids exactly those of Hugging Face's
// `tokenizers` library. What else a file may ask for is refused at load, by
// the name of its field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/digest.h"
#include "dataplane/base/status.h"

namespace tidepool::model {

// A token that is found in the text before BPE sees it.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  // Special tokens are left out by Decode with `skip_special_tokens`.
  bool special = false;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space after it along
  bool normalized = false;   // looked for in the normalized text
};

struct EncodeOptions {
  // Adds what the file's post-processor adds (a BOS token, for instance).
  bool add_special_tokens = true;
  // False: the text of a special token is plain text, so that nobody can forge
  // one. Added tokens that are not special are still found.
  bool parse_special_tokens = true;
  // Encoding stops with kResourceExhausted soon after more tokens than this.
  size_t max_tokens = std::numeric_limits<size_t>::max();
};

namespace internal {
class TokenizerImpl;
}  // namespace internal

// Immutable and thread-safe after loading; calls share a bounded lock-free
// cache of words.
class Tokenizer {
 public:
  // Texts beyond this are refused.
  static constexpr size_t kTextBytesMax = size_t{64} << 20;

  // Reads the file at `path`. Errors: kNotFound and the like, and Parse's.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path);

  // `json` is the text of a tokenizer.json.
  // Errors: kInvalidArgument for malformed JSON and for contradictions
  // (duplicate or missing ids, merges of unknown tokens…); kUnimplemented for
  // what is valid but not supported. The message names the field.
  static StatusOr<std::unique_ptr<Tokenizer>> Parse(std::string_view json);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Time is O(n log n) in the text, however adversarial.
  // Errors: kInvalidArgument if `text` is not valid UTF-8 (the caller decides
  // what to put instead) or longer than kTextBytesMax; kResourceExhausted
  // beyond `max_tokens`, or if a regular expression of the file that has no
  // hand-written matcher exceeds its match limit.
  StatusOr<std::vector<int32_t>> Encode(
      std::string_view text, const EncodeOptions& options = {}) const;

  // The text of `ids`: valid UTF-8, with U+FFFD for bytes that are not. Ids
  // without a token (a model's vocabulary may be padded) have no text.
  std::string Decode(std::span<const int32_t> ids,
                     bool skip_special_tokens) const;

  // Every id in [0, vocab_size) has a token.
  int32_t vocab_size() const;
  // Of a token as the file spells it ("Ġthe", "▁the", "<|im_end|>").
  std::optional<int32_t> TokenToId(std::string_view token) const;
  // As the file spells it; empty for ids without a token.
  std::string_view IdToToken(int32_t id) const;
  // The bytes that the token stands for in the middle of a text, not always
  // whole characters: those of all tokens together are the bytes of the text
  // (but for what decoders strip at its start). Empty for ids without a token.
  std::string_view TokenBytes(int32_t id) const;
  // TokenBytes with U+FFFD for what is not UTF-8.
  std::string TokenText(int32_t id) const;

  bool IsSpecial(int32_t id) const;
  // Ordered by id.
  std::span<const AddedToken> added_tokens() const;

  // SHA-256 of the file's bytes.
  const Sha256Digest& digest() const;

 private:
  friend class IncrementalDetokenizer;
  explicit Tokenizer(std::unique_ptr<const internal::TokenizerImpl> impl);
  std::unique_ptr<const internal::TokenizerImpl> impl_;
};

}  // namespace tidepool::model
