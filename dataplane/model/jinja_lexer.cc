#include "dataplane/model/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "dataplane/model/jinja_text.h"

namespace tidepool::model::jinja {
namespace {

bool IsNameStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool IsDecimal(char c) { return c >= '0' && c <= '9'; }
bool IsNameCharacter(char c) { return IsNameStart(c) || IsDecimal(c); }

// One newline convention, and without the last newline.
std::string NormalizeNewlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result += source[i];
      continue;
    }
    result += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source)
      : source_(NormalizeNewlines(source)) {}

  StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) RETURN_IF_ERROR(LexText());
    Emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const {
    return std::string_view(source_).substr(position_);
  }

  template <typename... Args>
  Status Error(fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidArgument("chat template, line {}: {}", line_,
                           fmt::format(format, std::forward<Args>(args)...));
  }

  void Advance(size_t bytes) {
    const std::string_view passed = Rest().substr(0, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    position_ += passed.size();
  }

  Token& Emit(TokenKind kind, std::string_view text) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = text;
    return token;
  }

  void SkipSpace() { Advance(LeadingSpace(Rest())); }
  static size_t LeadingSpace(std::string_view text) {
    return text.size() - StripSpace(text, Side::kLeft).size();
  }

  // Where the next `{{`, `{%` or `{#` starts.
  size_t FindTag(size_t from) const {
    for (size_t i = source_.find('{', from); i != std::string::npos;
         i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() &&
          std::string_view("{%#").find(source_[i + 1]) !=
              std::string_view::npos) {
        return i;
      }
    }
    return std::string::npos;
  }

  // `text` without the blanks in front of a tag that starts its line.
  std::string_view StripLineStart(std::string_view text) const {
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !at_line_start_) return text;
    const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    const std::string_view blanks = text.substr(start);
    const bool only_blanks = StripSpace(blanks, Side::kLeft).empty();
    return only_blanks ? text.substr(0, start) : text;
  }

  Status LexText() {
    const size_t begin = position_;
    const size_t tag = FindTag(begin);
    if (tag == std::string::npos) {
      EmitText(Rest(), source_.size() - begin);
      return OkStatus();
    }
    std::string_view text =
        std::string_view(source_).substr(begin, tag - begin);
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign == '-') {
      text = StripSpace(text, Side::kRight);
    } else if (sign != '+' && kind != '{') {
      text = StripLineStart(text);
    }
    EmitText(text, tag - begin);
    Advance(sign == '-' || sign == '+' ? 3 : 2);
    switch (kind) {
      case '#':
        return LexComment();
      case '{':
        Emit(TokenKind::kOutputBegin, "{{");
        return LexInside("}}", TokenKind::kOutputEnd);
      default:
        if (const size_t raw = RawTagLength(); raw != 0) return LexRaw(raw);
        Emit(TokenKind::kTagBegin, "{%");
        return LexInside("%}", TokenKind::kTagEnd);
    }
  }

  void EmitText(std::string_view text, size_t bytes) {
    if (!text.empty()) Emit(TokenKind::kText, text);
    Advance(bytes);
  }

  // After a tag's closing delimiter: `sign` stood before it.
  void AfterTag(char sign, bool trims_newline) {
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && trims_newline && Rest().starts_with('\n')) {
      Advance(1);
    }
    at_line_start_ = source_[position_ - 1] == '\n';
  }

  Status LexComment() {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) return Error("a comment has no end");
    const char last = end > position_ ? source_[end - 1] : '\0';
    Advance(end + 2 - position_);
    AfterTag(last, true);
    return OkStatus();
  }

  // The bytes of `raw %}` when the tag just entered is one, else 0.
  size_t RawTagLength() const {
    std::string_view rest = Rest();
    rest.remove_prefix(LeadingSpace(rest));
    if (!rest.starts_with("raw")) return 0;
    rest.remove_prefix(3);
    rest.remove_prefix(LeadingSpace(rest));
    if (rest.starts_with("-%}")) {
      rest.remove_prefix(3);
      rest.remove_prefix(LeadingSpace(rest));
    } else if (rest.starts_with("%}")) {
      rest.remove_prefix(2);
    } else {
      return 0;
    }
    return Rest().size() - rest.size();
  }

  Status LexRaw(size_t tag_bytes) {
    Advance(tag_bytes);
    at_line_start_ = source_[position_ - 1] == '\n';
    const size_t begin = position_;
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      std::string_view rest = std::string_view(source_).substr(tag + 2);
      const char sign = rest.empty() ? '\0' : rest.front();
      if (sign == '-' || sign == '+') rest.remove_prefix(1);
      rest.remove_prefix(LeadingSpace(rest));
      if (!rest.starts_with("endraw")) continue;
      rest.remove_prefix(6);
      rest.remove_prefix(LeadingSpace(rest));
      const char end_sign = rest.empty() ? '\0' : rest.front();
      if (end_sign == '-' || end_sign == '+') rest.remove_prefix(1);
      if (!rest.starts_with("%}")) continue;
      std::string_view text =
          std::string_view(source_).substr(begin, tag - begin);
      if (sign == '-') {
        text = StripSpace(text, Side::kRight);
      } else if (sign != '+') {
        text = StripLineStart(text);
      }
      EmitText(text, source_.size() - rest.size() + 2 - begin);
      AfterTag(end_sign, true);
      return OkStatus();
    }
    return Error("'raw' has no 'endraw'");
  }

  Status LexInside(std::string_view end, TokenKind end_kind) {
    std::string open;  // brackets not yet closed
    for (;;) {
      SkipSpace();
      const std::string_view rest = Rest();
      if (rest.empty()) return Error("a tag has no '{}'", end);
      if (open.empty()) {
        const bool sign =
            rest.front() == '-' ||
            (rest.front() == '+' && end_kind == TokenKind::kTagEnd);
        if (rest.substr(sign ? 1 : 0).starts_with(end)) {
          const char last = sign ? rest.front() : '\0';
          Emit(end_kind, end);
          Advance(end.size() + (sign ? 1 : 0));
          AfterTag(last, end_kind == TokenKind::kTagEnd);
          return OkStatus();
        }
      }
      RETURN_IF_ERROR(LexToken(rest, open));
    }
  }

  Status LexToken(std::string_view rest, std::string& open) {
    const char c = rest.front();
    if (IsDecimal(c)) return LexNumber(rest);
    if (c == '"' || c == '\'') return LexString(rest);
    if (IsNameStart(c)) {
      size_t size = 1;
      while (size < rest.size() && IsNameCharacter(rest[size])) ++size;
      Emit(TokenKind::kName, rest.substr(0, size));
      Advance(size);
      return OkStatus();
    }
    return LexOperator(rest, open);
  }

  Status LexOperator(std::string_view rest, std::string& open) {
    static constexpr std::array<std::string_view, 6> kPairs = {
        "//", "**", "==", "!=", ">=", "<="};
    size_t size = 1;
    for (const std::string_view pair : kPairs) {
      if (rest.starts_with(pair)) size = 2;
    }
    const char c = rest.front();
    if (size == 1 && std::string_view("+-*/%~<>=()[]{}.:|,").find(c) ==
                         std::string_view::npos) {
      return Error("unexpected character '{}'", c);
    }
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) return Error("unexpected '{}'", c);
      open.pop_back();
    }
    Emit(TokenKind::kOperator, rest.substr(0, size));
    Advance(size);
    return OkStatus();
  }

  // Digits with single underscores between them; the bytes matched.
  template <typename IsDigitOfBase>
  static size_t MatchDigits(std::string_view text, IsDigitOfBase is_digit) {
    size_t size = 0;
    while (size < text.size()) {
      const size_t skip = size > 0 && text[size] == '_' ? 1 : 0;
      if (size + skip >= text.size() || !is_digit(text[size + skip])) break;
      size += skip + 1;
    }
    return size;
  }

  // The bytes of the fraction and exponent after `whole` digits; 0 if none.
  size_t MatchFraction(std::string_view rest, size_t whole) const {
    // `a.0.1` is two subscripts.
    if (position_ > 0 && source_[position_ - 1] == '.') return 0;
    size_t size = 0;
    if (rest.substr(whole).starts_with('.')) {
      const size_t digits = MatchDigits(rest.substr(whole + 1), IsDecimal);
      if (digits > 0) size = 1 + digits;
    }
    const std::string_view tail = rest.substr(whole + size);
    if (!tail.empty() && (tail.front() == 'e' || tail.front() == 'E')) {
      const size_t sign =
          tail.size() > 1 && (tail[1] == '+' || tail[1] == '-') ? 1 : 0;
      const size_t digits = MatchDigits(tail.substr(1 + sign), IsDecimal);
      if (digits > 0) size += 1 + sign + digits;
    }
    return size;
  }

  Status LexNumber(std::string_view rest) {
    int base = 10;
    size_t prefix = 0;
    if (rest.size() > 2 && rest.front() == '0') {
      const char letter = static_cast<char>(rest[1] | 0x20);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      prefix = base == 10 ? 0 : 2;
    }
    const auto is_digit = [base](char c) {
      if (base == 16) return std::isxdigit(static_cast<unsigned char>(c)) != 0;
      return c >= '0' && c < '0' + base;
    };
    const auto is_zero = [](char c) { return c == '0'; };
    size_t whole = prefix + MatchDigits(rest.substr(prefix), is_digit);
    const size_t fraction = base == 10 ? MatchFraction(rest, whole) : 0;
    if (base == 10 && fraction == 0 && rest.front() == '0') {
      whole = MatchDigits(rest, is_zero);  // 012 is no number
    }
    std::string digits(rest.substr(prefix, whole - prefix + fraction));
    std::erase(digits, '_');
    Token& token =
        Emit(fraction > 0 ? TokenKind::kFloat : TokenKind::kInteger, digits);
    const char* const end = digits.data() + digits.size();
    const std::from_chars_result parsed =
        fraction > 0 ? std::from_chars(digits.data(), end, token.number)
                     : std::from_chars(digits.data(), end, token.integer, base);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      return Error("the number '{}' is out of range", rest.substr(0, 40));
    }
    Advance(whole + fraction);
    return OkStatus();
  }

  Status LexString(std::string_view rest) {
    size_t size = 1;
    while (size < rest.size() && rest[size] != rest.front()) {
      size += rest[size] == '\\' ? 2 : 1;
    }
    if (size >= rest.size()) return Error("a string has no end");
    StatusOr<std::string> text = Unescape(rest.substr(1, size - 1));
    RETURN_IF_ERROR(text.status());
    Emit(TokenKind::kString, *text);
    Advance(size + 1);
    return OkStatus();
  }

  // Python's escapes, which stay as they are where Python knows none.
  StatusOr<std::string> Unescape(std::string_view text) const {
    std::string result;
    result.reserve(text.size());
    while (!text.empty()) {
      if (text.front() != '\\' || text.size() < 2) {
        result += text.front();
        text.remove_prefix(1);
        continue;
      }
      static constexpr std::string_view kLetters = "\\'\"abfnrtv\n";
      static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
      const char c = text[1];
      text.remove_prefix(2);
      if (const size_t letter = kLetters.find(c);
          letter != std::string_view::npos) {
        if (c != '\n') result += kMeanings[letter];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        RETURN_IF_ERROR(UnescapeHex(c == 'x'   ? 2
                                    : c == 'u' ? 4
                                               : 8,
                                    text, result));
      } else if (c >= '0' && c <= '7') {
        int32_t code = c - '0';
        for (int i = 0; i < 2 && !text.empty() && text.front() >= '0' &&
                        text.front() <= '7';
             ++i) {
          code = code * 8 + (text.front() - '0');
          text.remove_prefix(1);
        }
        AppendCodePoint(code, result);
      } else {
        result += '\\';
        result += c;
      }
    }
    return result;
  }

  Status UnescapeHex(size_t digits, std::string_view& text,
                     std::string& result) const {
    uint32_t code = 0;
    if (text.size() < digits) return Error("a string has a truncated escape");
    const char* const end = text.data() + digits;
    const auto [stop, error] = std::from_chars(text.data(), end, code, 16);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (error != std::errc() || stop != end || code > 0x10FFFF || surrogate) {
      return Error("'{}' is no character to escape", text.substr(0, digits));
    }
    AppendCodePoint(static_cast<int32_t>(code), result);
    text.remove_prefix(digits);
    return OkStatus();
  }

  const std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

}  // namespace tidepool::model::jinja
