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

// Drops characters from the ends: those of `set`, or whitespace where it is
// empty and `whitespace` is set.
enum class Side { kLeft, kRight, kBoth };
std::string_view StripSpace(std::string_view text, Side side);
std::string_view StripSet(std::string_view text, std::string_view set,
                          Side side);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string Capitalize(std::string_view text);  // str.capitalize
std::string Title(std::string_view text);       // str.title

}  // namespace tidepool::model::jinja
