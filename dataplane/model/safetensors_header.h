// The header of a safetensors file: what lies where, checked before any byte
// of data is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/model/config.h"

namespace tidepool::model {

struct SafetensorsEntry {
  std::string dtype;  // as written, e.g. "BF16"
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // offsets from the start of the file
};

// By name, in order. The data of the entries fill the file from the end of the
// header to its own end without gap or overlap, and each entry of a known dtype
// is as long as its shape says.
using SafetensorsHeader = std::map<std::string, SafetensorsEntry, std::less<>>;

// The longest header that is read, as in the reference implementation.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// `file` is a whole file, or at least its first 8 bytes and header; `file_size`
// is the size of the whole.
// Errors: kInvalidArgument naming the tensor and the reason.
StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    std::span<const std::byte> file, uint64_t file_size);

// nullopt for dtypes that no weight of ours may have.
std::optional<DType> WeightDType(std::string_view safetensors_dtype);

// The shard of each tensor, as in `model.safetensors.index.json`. Shards are
// plain file names, never paths.
using SafetensorsIndex = std::map<std::string, std::string, std::less<>>;

// Errors: kInvalidArgument, kResourceExhausted.
StatusOr<SafetensorsIndex> ParseSafetensorsIndex(std::string_view json);

}  // namespace tidepool::model
