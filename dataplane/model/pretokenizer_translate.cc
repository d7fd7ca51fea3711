// Oniguruma's (Ruby's) syntax in PCRE2's words. What the two read differently
// is either rewritten or refused; nothing that would silently match something
// else gets through.
#include <algorithm>
#include <array>

#include "dataplane/model/pretokenizer_regex.h"

namespace tidepool::model::internal {
namespace {

// White_Space and what is not, as the inside of a character class.
constexpr std::string_view kSpaceRanges =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029})"
    R"(\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNonSpaceRanges =
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F})"
    R"(\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E})"
    R"(\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
constexpr std::string_view kWordRanges = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexRanges = "0-9A-Fa-f";

constexpr std::array<std::string_view, 38> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me",
    "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi",
    "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl",
    "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn", "Any"};
constexpr std::array<std::string_view, 24> kScripts = {
    "Arabic",     "Armenian", "Bengali",  "Bopomofo", "Common",   "Cyrillic",
    "Devanagari", "Ethiopic", "Georgian", "Greek",    "Gujarati", "Gurmukhi",
    "Han",        "Hangul",   "Hebrew",   "Hiragana", "Katakana", "Khmer",
    "Lao",        "Latin",    "Myanmar",  "Tamil",    "Telugu",   "Thai"};

bool IsAsciiAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHex(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view field)
      : pattern_(pattern), field_(field) {}

  StatusOr<std::string> Run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      Status status;
      if (c == '\\') {
        status = Escape();
      } else if (c == '[') {
        status = CharacterClass();
      } else if (c == '(') {
        status = Group();
      } else if (c == '{') {
        status = Quantifier();
      } else {
        out_.push_back(c);
        ++at_;
      }
      RETURN_IF_ERROR(status);
    }
    return std::move(out_);
  }

 private:
  Status Refused(std::string_view what) const {
    return Unimplemented(
        "tokenizer.json: {}: {} at byte {} is not supported in a regular "
        "expression",
        field_, what, at_);
  }

  char At(size_t ahead) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool Ahead(std::string_view text) const {
    return pattern_.substr(at_).starts_with(text);
  }
  void Copy(size_t bytes) {
    out_.append(pattern_.substr(at_, bytes));
    at_ += bytes;
  }
  void Replace(size_t bytes, std::string_view by) {
    out_.append(by);
    at_ += bytes;
  }

  // At a backslash outside a class.
  Status Escape() {
    const auto as_class = [this](std::string_view start,
                                 std::string_view ranges) {
      Replace(2, start);
      out_.append(ranges).push_back(']');
      return OkStatus();
    };
    switch (At(1)) {
      case 's':
        return as_class("[", kSpaceRanges);
      case 'S':
        return as_class("[^", kSpaceRanges);
      case 'w':
        return as_class("[", kWordRanges);
      case 'W':
        return as_class("[^", kWordRanges);
      case 'h':
        return as_class("[", kHexRanges);
      case 'H':
        return as_class("[^", kHexRanges);
      case 'A':
      case 'z':
        Copy(2);
        return OkStatus();
      default:
        return CommonEscape();
    }
  }

  // What means the same in and outside a class.
  Status CommonEscape() {
    const char c = At(1);
    switch (c) {
      case 'd':
        Replace(2, R"(\p{Nd})");
        return OkStatus();
      case 'D':
        Replace(2, R"(\P{Nd})");
        return OkStatus();
      case 'v':
        Replace(2, R"(\x{B})");
        return OkStatus();
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        Copy(2);
        return OkStatus();
      case 'p':
      case 'P':
        return Property();
      case 'x':
      case 'u':
        return CodePoint();
      case '\0':
        return Refused("a backslash");
      default:
        break;
    }
    if (IsAsciiAlnum(c)) {
      return Refused(fmt::format("\\{}", c));
    }
    Copy(2);
    return OkStatus();
  }

  // \p{Lu}, \P{Han}, \p{^L}.
  Status Property() {
    const size_t close = pattern_.find('}', at_);
    if (At(2) != '{' || close == std::string_view::npos) {
      return Refused("a property without braces");
    }
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    bool negated = At(1) == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool script = std::ranges::find(kScripts, name) != kScripts.end();
    if (!script && std::ranges::find(kCategories, name) == kCategories.end()) {
      return Refused(fmt::format("the property \"{}\"", name));
    }
    out_ += fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p',
                        script ? "sc:" : "", name);
    at_ = close + 1;
    return OkStatus();
  }

  // \x{1F600}, \x41, \u00E9.
  Status CodePoint() {
    size_t start = 2;
    size_t digits = 0;
    const bool braces = At(1) == 'x' && At(2) == '{';
    if (braces) ++start;
    const size_t digits_max = braces ? 6 : At(1) == 'u' ? 4 : 2;
    while (digits < digits_max && IsHex(At(start + digits))) ++digits;
    if (digits == 0 || (At(1) == 'u' && digits != 4) ||
        (braces && At(start + digits) != '}')) {
      return Refused("this code point");
    }
    out_ += fmt::format("\\x{{{}}}", pattern_.substr(at_ + start, digits));
    at_ += start + digits + (braces ? 1 : 0);
    return OkStatus();
  }

  Status CharacterClass() {
    Copy(1);
    if (At(0) == '^') Copy(1);
    if (At(0) == ']') return Refused("an empty character class");
    while (at_ < pattern_.size() && At(0) != ']') {
      if (At(0) == '[') return Refused("a class within a class");
      if (Ahead("&&")) return Refused("an intersection of classes");
      if (At(0) != '\\') {
        Copy(1);
        continue;
      }
      RETURN_IF_ERROR(ClassEscape());
    }
    if (at_ == pattern_.size()) {
      return InvalidArgument("tokenizer.json: {}: a character class is open",
                             field_);
    }
    Copy(1);
    return OkStatus();
  }

  Status ClassEscape() {
    switch (At(1)) {
      case 's':
        Replace(2, kSpaceRanges);
        return OkStatus();
      case 'S':
        Replace(2, kNonSpaceRanges);
        return OkStatus();
      case 'w':
        Replace(2, kWordRanges);
        return OkStatus();
      case 'h':
        Replace(2, kHexRanges);
        return OkStatus();
      default:
        return CommonEscape();
    }
  }

  Status Group() {
    if (At(1) != '?') {
      Copy(1);
      return OkStatus();
    }
    constexpr std::array<std::string_view, 8> kPlain = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    for (const std::string_view opening : kPlain) {
      if (!Ahead(opening)) continue;
      Copy(opening.size());
      return OkStatus();
    }
    // Further in, the two disagree on how far it reaches.
    if (at_ == 0 && Ahead("(?i)")) {
      Copy(4);
      return OkStatus();
    }
    return Refused("this kind of group");
  }

  // {3}, {1,3}, {2,}, {,3}; any other brace is itself.
  Status Quantifier() {
    size_t end = 1;
    while (IsDigit(At(end)) || At(end) == ',') ++end;
    const std::string_view body = pattern_.substr(at_ + 1, end - 1);
    const auto commas = std::ranges::count(body, ',');
    if (At(end) != '}' || body.empty() || body == "," || commas > 1) {
      Replace(1, R"(\{)");
      return OkStatus();
    }
    const char suffix = At(end + 1);
    if (suffix == '+' || (suffix == '?' && commas == 0)) {
      return Refused(fmt::format("{{{}}}{}", body, suffix));
    }
    out_ += body[0] == ',' ? fmt::format("{{0{}}}", body)
                           : fmt::format("{{{}}}", body);
    at_ += end + 1;
    return OkStatus();
  }

  std::string_view pattern_;
  std::string_view field_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

StatusOr<std::string> TranslateRegex(std::string_view pattern,
                                     std::string_view field) {
  return Translator(pattern, field).Run();
}

}  // namespace tidepool::model::internal
