// The alphabet of byte-level BPE: every byte as one printable character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tidepool::model::internal {

// The character that stands for `byte` in a byte-level vocabulary, as GPT-2
// chose them: printable Latin-1 stands for itself, the others are shifted
// beyond U+0100.
char32_t ByteLevelChar(uint8_t byte);

// The bytes that the characters of `token` stand for; nullopt if one of them
// is outside the alphabet. `token` is valid UTF-8.
std::optional<std::string> ByteLevelBytes(std::string_view token);

// The byte that "<0xE2>" stands for.
std::optional<uint8_t> ByteFallbackByte(std::string_view token);

}  // namespace tidepool::model::internal
