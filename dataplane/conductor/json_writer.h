// JSON text, appended piece by piece.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace tidepool::conductor {

// Writes one JSON value; commas are its own business, matching Begin and End
// are the caller's. Externally synchronized.
//
//   JsonWriter json;
//   json.BeginObject().Field("id", 7).Key("tags").BeginArray()…
class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view name);

  // Must be UTF-8.
  JsonWriter& Value(std::string_view text);
  JsonWriter& Value(const char* text) { return Value(std::string_view(text)); }
  JsonWriter& Value(const std::string& text) {
    return Value(std::string_view(text));
  }
  JsonWriter& Value(std::same_as<bool> auto value) {
    return Raw(value ? "true" : "false");
  }
  JsonWriter& Value(std::signed_integral auto value) {
    return Number(static_cast<int64_t>(value));
  }
  JsonWriter& Value(std::unsigned_integral auto value) requires(
      !std::same_as<decltype(value), bool>) {
    return Number(static_cast<uint64_t>(value));
  }
  // The shortest text that reads back equal; null if not finite.
  JsonWriter& Value(float value);
  JsonWriter& Value(double value);
  JsonWriter& Null() { return Raw("null"); }
  // A whole value that is JSON already.
  JsonWriter& Raw(std::string_view json);

  template <typename T>
  JsonWriter& Field(std::string_view name, const T& value) {
    return Key(name).Value(value);
  }
  JsonWriter& NullField(std::string_view name) { return Key(name).Null(); }

  const std::string& text() const { return text_; }
  std::string Take() { return std::move(text_); }

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  JsonWriter& Number(int64_t value);
  JsonWriter& Number(uint64_t value);
  void Separate();
  void Quote(std::string_view text);

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace tidepool::conductor
