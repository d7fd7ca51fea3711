// What a tokenizer.json says, checked for shape but not yet put to work. The
// views point into the parsed file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/model/tokenizer.h"
#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {

// Bounds on what a file may contain.
inline constexpr size_t kFileBytesMax = size_t{256} << 20;
inline constexpr size_t kVocabularyMax = size_t{1} << 22;
inline constexpr size_t kMergesMax = size_t{1} << 23;
inline constexpr size_t kTokenBytesMax = 4096;
inline constexpr size_t kStepsMax = 64;
inline constexpr size_t kPatternBytesMax = 16384;

struct Pattern {
  bool is_regex = false;
  std::string text;  // literal if not a regular expression; not empty
};

struct UnicodeStep {
  NormalForm form = NormalForm::kNfc;
};
struct LowercaseStep {};
struct StripAccentsStep {};
struct PrependStep {
  std::string text;
};
struct ReplaceStep {
  Pattern pattern;
  std::string content;
};
struct StripSpaceStep {
  bool left = false;
  bool right = false;
};
using NormalizerStep =
    std::variant<UnicodeStep, LowercaseStep, StripAccentsStep, PrependStep,
                 ReplaceStep, StripSpaceStep>;

// What becomes of the matches of a splitting pattern.
enum class SplitBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};
struct SplitStep {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the pattern describes what is between matches
};
// Splits around characters with any of `flags`.
struct CharClassStep {
  uint16_t flags = 0;
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
// Keeps runs of word characters and runs of other visible characters.
struct WordsStep {};
struct ByteLevelStep {
  bool add_prefix_space = true;
  bool use_regex = true;
};
enum class PrependScheme { kAlways, kFirst, kNever };
struct MetaspaceStep {
  std::string replacement;  // one character
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;
};
using PretokenizerStep = std::variant<SplitStep, CharClassStep, WordsStep,
                                      ByteLevelStep, MetaspaceStep>;

// Decoders. Bytes: ByteLevel's alphabet back to bytes, all tokens joined.
struct ByteLevelDecoder {};
struct ByteFallbackDecoder {};
struct FuseDecoder {};
struct ReplaceDecoder {
  std::string from;  // not empty
  std::string to;
};
struct StripDecoder {
  std::string content;  // one character
  size_t start = 0;
  size_t stop = 0;
};
struct MetaspaceDecoder {
  std::string replacement;  // one character
  bool drop_in_first_token = true;
};
using DecoderStep =
    std::variant<ByteLevelDecoder, ByteFallbackDecoder, FuseDecoder,
                 ReplaceDecoder, StripDecoder, MetaspaceDecoder>;

struct BpeSpec {
  // Token and id in the order of the file; not yet unique.
  std::vector<std::pair<std::string_view, int32_t>> vocabulary;
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  std::optional<std::string_view> unk_token;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

struct TokenizerSpec {
  std::vector<AddedToken> added_tokens;  // ordered by id
  std::vector<NormalizerStep> normalizer;
  std::vector<PretokenizerStep> pretokenizer;
  std::vector<int32_t> prefix_ids;  // what the post-processor adds
  std::vector<int32_t> suffix_ids;
  std::optional<std::vector<DecoderStep>> decoder;
  BpeSpec model;
};

// Keeps what the views of a spec point into.
class ParsedFile {
 public:
  // Errors: as Tokenizer::Parse, for all that concerns one field.
  static StatusOr<std::unique_ptr<ParsedFile>> Parse(std::string_view json);
  ~ParsedFile();

  const TokenizerSpec& spec() const { return spec_; }

 private:
  struct Document;
  ParsedFile();
  std::unique_ptr<Document> document_;
  TokenizerSpec spec_;
};

}  // namespace tidepool::model::internal
