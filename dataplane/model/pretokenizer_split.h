// Hand-written equivalents of the regular expressions that GPT-2, Llama 3 and
// Qwen split text with.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tidepool::model::internal {

// A pattern that matches all of a text in pieces.
class KnownSplit {
 public:
  // nullopt unless `regex` is, to the letter, one of those known here.
  static std::optional<KnownSplit> Recognize(std::string_view regex);
  // What ByteLevel does by itself.
  static KnownSplit Gpt2() { return KnownSplit(Family::kGpt2, 0); }

  // The end of the piece that begins at `start` of `text`, valid UTF-8;
  // `start` < text.size(). Over all pieces O(text.size()).
  size_t PieceEnd(std::string_view text, size_t start) const {
    return family_ == Family::kGpt2 ? Gpt2End(text, start)
                                    : Cl100kEnd(text, start);
  }

 private:
  enum class Family { kGpt2, kCl100k };
  KnownSplit(Family family, size_t digits_max)
      : family_(family), digits_max_(digits_max) {}

  static size_t Gpt2End(std::string_view text, size_t start);
  size_t Cl100kEnd(std::string_view text, size_t start) const;

  Family family_;
  size_t digits_max_;  // in one piece
};

}  // namespace tidepool::model::internal
