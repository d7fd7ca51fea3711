// Any bytes as a safetensors file, or as the index of a sharded one: an error
// or a header whose every entry lies within the file.
#include <cstdint>
#include <span>
#include <string_view>

#include "dataplane/base/check.h"
#include "dataplane/model/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidepool::model;  // NOLINT: the function is the program
  const auto file = std::as_bytes(std::span(data, size));
  if (const auto header = ParseSafetensorsHeader(file, size); header.ok()) {
    uint64_t total = 0;
    for (const auto& [name, entry] : *header) {
      CHECK(entry.begin <= entry.end && entry.end <= size);
      total += entry.end - entry.begin;
    }
    CHECK(total <= size);
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto index = ParseSafetensorsIndex(text); index.ok()) {
    for (const auto& [tensor, file_name] : *index)
      CHECK(file_name.find('/') == std::string::npos);
  }
  return 0;
}
