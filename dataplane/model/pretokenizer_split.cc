#include "dataplane/model/pretokenizer_split.h"

#include <array>
#include <cstdint>

#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {
namespace {

enum class Kind : uint8_t { kOther, kLetter, kNumber, kSpace, kNewline };

constexpr std::array<Kind, 128> MakeAsciiKinds() {
  std::array<Kind, 128> kinds{};
  for (int c = 0; c < 128; ++c) {
    Kind& kind = kinds[static_cast<size_t>(c)];
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      kind = Kind::kLetter;
    } else if (c >= '0' && c <= '9') {
      kind = Kind::kNumber;
    } else if (c == '\n' || c == '\r') {
      kind = Kind::kNewline;
    } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
      kind = Kind::kSpace;
    } else {
      kind = Kind::kOther;
    }
  }
  return kinds;
}

constexpr std::array<Kind, 128> kAsciiKinds = MakeAsciiKinds();

struct Char {
  Kind kind = Kind::kOther;
  uint32_t bytes = 0;  // 0: the end of the text
};

// Walks over the characters of a text.
class Cursor {
 public:
  Cursor(std::string_view text, size_t at) : text_(text), at_(at) {}

  size_t at() const { return at_; }
  bool AtEnd() const { return at_ >= text_.size(); }
  void Skip(size_t bytes) { at_ += bytes; }

  Char Peek(size_t ahead = 0) const {
    const size_t at = at_ + ahead;
    if (at >= text_.size()) return {};
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return {kAsciiKinds[byte], 1};
    return PeekWide(at);
  }

  // Takes what is of `kind`, up to `count` characters.
  void SkipSome(Kind kind, size_t count) {
    for (; count > 0; --count) {
      const Char c = Peek();
      if (c.bytes == 0 || c.kind != kind) return;
      at_ += c.bytes;
    }
  }

  void SkipAll(Kind kind) {
    size_t at = at_;
    while (at < text_.size()) {
      const auto byte = static_cast<unsigned char>(text_[at]);
      if (byte < 0x80) {
        if (kAsciiKinds[byte] != kind) break;
        ++at;
      } else {
        const Char c = PeekWide(at);
        if (c.kind != kind) break;
        at += c.bytes;
      }
    }
    at_ = at;
  }

 private:
  // Out of line, so that the way for ASCII is short.
  [[gnu::noinline]] Char PeekWide(size_t at) const {
    const DecodedChar c = DecodeChar(text_.data() + at);
    const uint16_t flags = FlagsOf(c.value);
    Kind kind = Kind::kOther;
    if ((flags & kLetter) != 0) {
      kind = Kind::kLetter;
    } else if ((flags & kNumber) != 0) {
      kind = Kind::kNumber;
    } else if ((flags & kSpace) != 0) {
      kind = Kind::kSpace;
    }
    return {kind, c.bytes};
  }

  std::string_view text_;
  size_t at_;
};

bool IsSpace(Kind kind) {
  return kind == Kind::kSpace || kind == Kind::kNewline;
}

// The length of 's, 't, 're, 've, 'm, 'll or 'd at the start of `text`, which
// starts with an apostrophe; 0 if there is none.
size_t ContractionBytes(std::string_view text, bool ignore_case) {
  const auto letter = [&](size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20)
                                               : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      break;
  }
  // ſ is an s to those who ignore case.
  constexpr std::string_view kLongS = "\u017F";
  return ignore_case && text.substr(1).starts_with(kLongS) ? 3 : 0;
}

// \s+(?!\S)|\s+ at white space: all of a run at the end of the text, otherwise
// all but its last character, which goes with what follows.
size_t WhiteSpaceEnd(std::string_view text, Cursor cursor) {
  size_t last = cursor.at();  // where the run's last character starts
  const size_t start = last;
  for (Char c = cursor.Peek(); c.bytes != 0 && IsSpace(c.kind);
       c = cursor.Peek()) {
    last = cursor.at();
    cursor.Skip(c.bytes);
  }
  return cursor.at() == text.size() || last == start ? cursor.at() : last;
}

}  // namespace

std::optional<KnownSplit> KnownSplit::Recognize(std::string_view regex) {
  if (regex ==
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)") {
    return Gpt2();
  }
  constexpr std::string_view kBefore =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  constexpr std::string_view kAfter =
      R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (!regex.starts_with(kBefore) || !regex.ends_with(kAfter) ||
      regex.size() < kBefore.size() + kAfter.size()) {
    return std::nullopt;
  }
  const std::string_view number = regex.substr(
      kBefore.size(), regex.size() - kBefore.size() - kAfter.size());
  if (number == R"(\p{N})") return KnownSplit(Family::kCl100k, 1);
  if (number == R"(\p{N}{1,3})") return KnownSplit(Family::kCl100k, 3);
  return std::nullopt;
}

size_t KnownSplit::Gpt2End(std::string_view text, size_t start) {
  Cursor cursor(text, start);
  const char first = text[start];
  if (first == '\'') {
    const size_t bytes = ContractionBytes(text.substr(start), false);
    if (bytes != 0) return start + bytes;
  }
  Char c = cursor.Peek();
  if (first == ' ') {
    const Char next = cursor.Peek(1);
    if (next.bytes != 0 && !IsSpace(next.kind)) {
      cursor.Skip(1);
      c = next;
    }
  }
  if (IsSpace(c.kind)) return WhiteSpaceEnd(text, cursor);
  cursor.SkipAll(c.kind);
  return cursor.at();
}

size_t KnownSplit::Cl100kEnd(std::string_view text, size_t start) const {
  Cursor cursor(text, start);
  const Char first = cursor.Peek();
  if (first.kind == Kind::kLetter) {
    cursor.SkipAll(Kind::kLetter);
    return cursor.at();
  }
  if (first.kind == Kind::kNumber) {
    cursor.SkipSome(Kind::kNumber, digits_max_);
    return cursor.at();
  }
  if (text[start] == '\'') {
    const size_t bytes = ContractionBytes(text.substr(start), true);
    if (bytes != 0) return start + bytes;
  }
  if (first.kind != Kind::kNewline) {
    const Char next = cursor.Peek(first.bytes);
    if (next.bytes != 0 && next.kind == Kind::kLetter) {
      cursor.Skip(first.bytes);
      cursor.SkipAll(Kind::kLetter);
      return cursor.at();
    }
    const bool space_before_other =
        text[start] == ' ' && next.bytes != 0 && next.kind == Kind::kOther;
    if (first.kind == Kind::kOther || space_before_other) {
      cursor.Skip(first.bytes);
      cursor.SkipAll(Kind::kOther);
      cursor.SkipAll(Kind::kNewline);
      return cursor.at();
    }
  }
  // \s*[\r\n]+: up to the last line end of this white space.
  size_t line_end = 0;
  Cursor space = cursor;
  for (Char c = space.Peek(); c.bytes != 0 && IsSpace(c.kind);
       c = space.Peek()) {
    space.Skip(c.bytes);
    if (c.kind == Kind::kNewline) line_end = space.at();
  }
  return line_end != 0 ? line_end : WhiteSpaceEnd(text, cursor);
}

}  // namespace tidepool::model::internal
