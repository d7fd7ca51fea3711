#include "dataplane/conductor/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace tidepool::conductor {

void JsonWriter::Separate() {
  if (needs_comma_) text_.push_back(',');
  needs_comma_ = true;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  text_.push_back(bracket);
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  text_.push_back(bracket);
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view name) {
  Separate();
  Quote(name);
  text_.push_back(':');
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Value(std::string_view text) {
  Separate();
  Quote(text);
  return *this;
}

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  text_ += json;
  return *this;
}

JsonWriter& JsonWriter::Number(int64_t value) {
  return Raw(fmt::format_int(value).c_str());
}
JsonWriter& JsonWriter::Number(uint64_t value) {
  return Raw(fmt::format_int(value).c_str());
}

JsonWriter& JsonWriter::Value(float value) {
  if (!std::isfinite(value)) return Null();
  Separate();
  fmt::format_to(std::back_inserter(text_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::Value(double value) {
  if (!std::isfinite(value)) return Null();
  Separate();
  fmt::format_to(std::back_inserter(text_), "{}", value);
  return *this;
}

void JsonWriter::Quote(std::string_view text) {
  text_.push_back('"');
  size_t plain = 0;  // start of what needs no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    text_ += text.substr(plain, i - plain);
    plain = i + 1;
    switch (c) {
      case '"':
        text_ += "\\\"";
        break;
      case '\\':
        text_ += "\\\\";
        break;
      case '\n':
        text_ += "\\n";
        break;
      case '\r':
        text_ += "\\r";
        break;
      case '\t':
        text_ += "\\t";
        break;
      default:
        fmt::format_to(std::back_inserter(text_), "\\u{:04x}", c);
    }
  }
  text_ += text.substr(plain);
  text_.push_back('"');
}

}  // namespace tidepool::conductor
