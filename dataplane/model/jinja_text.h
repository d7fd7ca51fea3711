// Python's view of text: characters are code points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tidepool::model::jinja {

struct CodePoint {
  int32_t value;  // negative: a byte that is not part of a character
  size_t bytes;   // at least 1
};

// Of the character at the front of non-empty `text`.
CodePoint FirstCodePoint(std::string_view text);
void AppendCodePoint(int32_t code_point, std::string& out);

size_t CountCodePoints(std::string_view text);
// The byte offset of the character with this index; the size if there is none.
size_t OffsetOf(std::string_view text, size_t index);

bool IsSpace(int32_t code_point);   // str.isspace
bool IsLetter(int32_t code_point);  // str.isalpha
bool IsDigit(int32_t code_point);   // str.isdigit for decimal digits
bool IsUpper(int32_t code_point);
bool IsLower(int32_t code_point);
bool IsPrintable(int32_t code_point);

// Where `part` begins in `text`, at `from` or after it; npos if nowhere. Unlike
// string_view's own, which compares byte by byte at every place, linear.
size_t FindText(std::string_view text, std::string_view part, size_t from = 0);

// The same from the right, for several looks at one text. Borrows both.
class LastFinder {
 public:
  LastFinder(std::string_view text, std::string_view part);

  // The last place where `part` ends at or before `end`; npos if nowhere.
  size_t FindBefore(size_t end) const;

 private:
  std::string_view text_, part_;
  std::string reversed_text_, reversed_part_;  // of a long part
};

// Drops characters from the ends: whitespace, or those of `set`.
enum class Side { kLeft, kRight, kBoth };
std::string_view StripSpace(std::string_view text, Side side);
std::string_view StripSet(std::string_view text, std::string_view set,
                          Side side);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string Capitalize(std::string_view text);  // str.capitalize
std::string Title(std::string_view text);       // str.title

}  // namespace tidepool::model::jinja
