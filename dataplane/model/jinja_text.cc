#include "dataplane/model/jinja_text.h"

#include <utf8proc.h>

#include <cstring>

namespace tidepool::model::jinja {
namespace {

utf8proc_category_t CategoryOf(int32_t code_point) {
  return utf8proc_category(code_point);
}

void AppendCharacter(std::string_view text, CodePoint point, int32_t mapped,
                     std::string& out) {
  if (mapped == point.value) {
    out.append(text.substr(0, point.bytes));
  } else {
    AppendCodePoint(mapped, out);
  }
}

// Of the few characters whose upper case is several, the one in daily use.
constexpr int32_t kSharpS = 0xDF;

void AppendUpper(std::string_view text, CodePoint point, std::string& out) {
  if (point.value == kSharpS) {
    out += "SS";
  } else if (point.value < 0) {
    out += text.front();
  } else {
    AppendCharacter(text, point, utf8proc_toupper(point.value), out);
  }
}

void AppendTitle(std::string_view text, CodePoint point, std::string& out) {
  if (point.value == kSharpS) {
    out += "Ss";
  } else if (point.value < 0) {
    out += text.front();
  } else {
    AppendCharacter(text, point, utf8proc_totitle(point.value), out);
  }
}

void AppendLower(std::string_view text, CodePoint point, std::string& out) {
  if (point.value < 0) {
    out += text.front();
  } else {
    AppendCharacter(text, point, utf8proc_tolower(point.value), out);
  }
}

// Looking for so few bytes at every place costs no more than reversing a text.
constexpr size_t kShortPart = 16;

// The last character of non-empty `text`.
CodePoint LastCodePoint(std::string_view text) {
  for (size_t bytes = 2; bytes <= 4 && bytes <= text.size(); ++bytes) {
    const CodePoint point = FirstCodePoint(text.substr(text.size() - bytes));
    if (point.bytes == bytes) return point;
  }
  return FirstCodePoint(text.substr(text.size() - 1));
}

template <typename Drops>
std::string_view Strip(std::string_view text, Side side, Drops drops) {
  if (side != Side::kRight) {
    while (!text.empty()) {
      const CodePoint point = FirstCodePoint(text);
      if (!drops(text.substr(0, point.bytes), point)) break;
      text.remove_prefix(point.bytes);
    }
  }
  if (side != Side::kLeft) {
    while (!text.empty()) {
      const CodePoint point = LastCodePoint(text);
      if (!drops(text.substr(text.size() - point.bytes), point)) break;
      text.remove_suffix(point.bytes);
    }
  }
  return text;
}

}  // namespace

CodePoint FirstCodePoint(std::string_view text) {
  if (static_cast<unsigned char>(text.front()) < 0x80) {
    return {text.front(), 1};
  }
  utf8proc_int32_t value = -1;
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &value);
  if (bytes <= 0) return {-1, 1};
  return {value, static_cast<size_t>(bytes)};
}

void AppendCodePoint(int32_t code_point, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size = utf8proc_encode_char(code_point, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) {
    i += FirstCodePoint(text.substr(i)).bytes;
  }
  return count;
}

size_t OffsetOf(std::string_view text, size_t index) {
  size_t offset = 0;
  while (index > 0 && offset < text.size()) {
    offset += FirstCodePoint(text.substr(offset)).bytes;
    --index;
  }
  return offset;
}

size_t FindText(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* const found =
      memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

LastFinder::LastFinder(std::string_view text, std::string_view part)
    : text_(text), part_(part) {
  if (part.size() <= kShortPart) return;
  reversed_text_.assign(text.rbegin(), text.rend());
  reversed_part_.assign(part.rbegin(), part.rend());
}

size_t LastFinder::FindBefore(size_t end) const {
  if (part_.size() <= kShortPart) return text_.substr(0, end).rfind(part_);
  const size_t found =
      FindText(reversed_text_, reversed_part_, text_.size() - end);
  if (found == std::string_view::npos) return found;
  return text_.size() - found - part_.size();
}

bool IsSpace(int32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
  return c == 0x85 || CategoryOf(c) == UTF8PROC_CATEGORY_ZS || c == 0x2028 ||
         c == 0x2029;
}

bool IsLetter(int32_t c) {
  if (c < 0) return false;
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDigit(int32_t c) {
  return c >= 0 && CategoryOf(c) == UTF8PROC_CATEGORY_ND;
}

bool IsUpper(int32_t c) { return c >= 0 && utf8proc_isupper(c) != 0; }
bool IsLower(int32_t c) { return c >= 0 && utf8proc_islower(c) != 0; }

bool IsPrintable(int32_t c) {
  if (c < 0) return false;
  if (c == ' ') return true;
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string_view StripSpace(std::string_view text, Side side) {
  return Strip(text, side, [](std::string_view, CodePoint point) {
    return point.value >= 0 && IsSpace(point.value);
  });
}

std::string_view StripSet(std::string_view text, std::string_view set,
                          Side side) {
  return Strip(text, side, [set](std::string_view character, CodePoint) {
    return set.find(character) != std::string_view::npos;
  });
}

std::string ToUpper(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = FirstCodePoint(text);
    AppendUpper(text, point, result);
    text.remove_prefix(point.bytes);
  }
  return result;
}

std::string ToLower(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = FirstCodePoint(text);
    AppendLower(text, point, result);
    text.remove_prefix(point.bytes);
  }
  return result;
}

std::string Capitalize(std::string_view text) {
  std::string result;
  if (text.empty()) return result;
  const CodePoint point = FirstCodePoint(text);
  AppendTitle(text, point, result);
  return result + ToLower(text.substr(point.bytes));
}

std::string Title(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  bool inside_word = false;
  while (!text.empty()) {
    const CodePoint point = FirstCodePoint(text);
    if (inside_word) {
      AppendLower(text, point, result);
    } else {
      AppendTitle(text, point, result);
    }
    inside_word = IsUpper(point.value) || IsLower(point.value);
    text.remove_prefix(point.bytes);
  }
  return result;
}

}  // namespace tidepool::model::jinja
