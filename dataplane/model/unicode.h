// Characters as the tokenizers that we must equal see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tidepool::model::internal {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// Classes of a character in Hugging Face's library, whose parts follow
// different versions of Unicode; the order is that of unicode_tables.inc.
enum CharFlag : uint16_t {
  kLetter = 1,        // \p{L} of its regular expressions
  kNumber = 2,        // \p{N} of its regular expressions
  kSpace = 4,         // White_Space
  kWord = 8,          // \w of Unicode regular expressions
  kPunctuation = 16,  // its Punctuation pre-tokenizer
  kNumeric = 32,      // its Digits pre-tokenizer
  kMark = 64,         // its StripAccents normalizer
  kNfcActive = 128,   // may be changed by NFC, or change what is before
  kNormalizationBarrier = 256,  // unknown to its normalizers
};

namespace unicode_tables {
// Two stages: the upper bits of a code point choose a block of 256 flags, and
// equal blocks are stored once.
inline constexpr size_t kBlocks = 0x110000 >> 8;
struct FlagTable {
  FlagTable();
  const uint16_t* blocks[kBlocks];
  std::set<std::vector<uint16_t>> storage;
};
const FlagTable& Flags();
}  // namespace unicode_tables

// CharFlags of `c`, a code point.
inline uint16_t FlagsOf(char32_t c) {
  return unicode_tables::Flags().blocks[c >> 8][c & 0xFF];
}

struct DecodedChar {
  char32_t value = 0;
  uint32_t bytes = 0;
};

// The character at `at` of valid UTF-8, where one begins.
inline DecodedChar DecodeChar(const char* at) {
  const auto byte = [at](int i) {
    return static_cast<char32_t>(static_cast<unsigned char>(at[i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
              (byte(3) & 0x3F),
          4};
}

// The character that ends before `end` of valid UTF-8; one does.
DecodedChar DecodeCharBefore(const char* end);

inline bool IsContinuationByte(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

void AppendUtf8(char32_t c, std::string& out);

// The offset of the first byte that is not valid UTF-8, or text.size().
size_t ValidUtf8Prefix(std::string_view text);

// How many bytes at the end of `text` are the beginning of a character that
// more bytes may complete.
size_t IncompleteSuffixBytes(std::string_view text);

// Appends `text` with U+FFFD for every maximal part of an ill-formed sequence
// (Unicode §3.9, as Rust and browsers do).
void AppendLossy(std::string_view text, std::string& out);

// Lowercase of `c` by Unicode's full mapping, without context.
void AppendLowercase(char32_t c, std::string& out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// True if normalizing `text`, valid UTF-8, certainly changes nothing.
bool IsCertainlyNormal(NormalForm form, std::string_view text);

// `text` is valid UTF-8.
std::string Normalize(NormalForm form, std::string_view text);

}  // namespace tidepool::model::internal
