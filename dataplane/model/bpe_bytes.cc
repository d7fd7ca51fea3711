#include "dataplane/model/bpe_bytes.h"

#include <array>
#include <charconv>

#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {
namespace {

constexpr bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

struct Alphabet {
  std::array<char32_t, 256> to_char{};
  std::array<int16_t, 512> to_byte{};  // -1: none
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.to_byte.fill(-1);
  char32_t shifted = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c =
        StandsForItself(byte) ? static_cast<char32_t>(byte) : shifted++;
    alphabet.to_char[static_cast<size_t>(byte)] = c;
    alphabet.to_byte[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

char32_t ByteLevelChar(uint8_t byte) { return kAlphabet.to_char[byte]; }

std::optional<std::string> ByteLevelBytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t at = 0; at < token.size();) {
    const DecodedChar c = DecodeChar(token.data() + at);
    at += c.bytes;
    if (c.value >= kAlphabet.to_byte.size()) return std::nullopt;
    const int16_t byte = kAlphabet.to_byte[c.value];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

std::optional<uint8_t> ByteFallbackByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') {
    return std::nullopt;
  }
  uint8_t byte = 0;
  const char* end = token.data() + 5;
  const auto result = std::from_chars(token.data() + 3, end, byte, 16);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return byte;
}

}  // namespace tidepool::model::internal
