// Splits a template's source into text, tags and the tokens inside them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"

namespace tidepool::model::jinja {

enum class TokenKind : uint8_t {
  kText,
  kOutputBegin,  // {{
  kOutputEnd,
  kTagBegin,  // {%
  kTagEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  std::string text;  // of kString unescaped
  int64_t integer = 0;
  double number = 0;
};

// Whitespace is handled here as with trim_blocks and lstrip_blocks set: the
// newline after a tag and the blanks before one that starts a line are dropped,
// `-` drops all whitespace on its side, `+` keeps it. One newline at the end of
// the source is dropped. The last token is kEnd.
// Errors: kInvalidArgument naming the line.
StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace tidepool::model::jinja
