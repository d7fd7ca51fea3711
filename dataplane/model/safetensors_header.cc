#include "dataplane/model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "dataplane/base/checked_math.h"
#include "dataplane/model/strict_json.h"

namespace tidepool::model {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxRank = 16;
constexpr size_t kMaxShards = 4096;
constexpr size_t kMaxIndexBytes = 64 << 20;

// Bits per element. Dtypes that are not here may stand in a file, unchecked,
// as long as nobody asks for them.
struct KnownDType {
  std::string_view name;
  uint64_t bits;
};
constexpr KnownDType kKnownDTypes[] = {
    {"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},    {"BF16", 16},
    {"I32", 32},    {"U32", 32}, {"F32", 32}, {"F64", 64},    {"I64", 64},
    {"U64", 64},    {"C64", 64}};

// Reads the header in one pass and keeps only what it is made of. A document
// tree of the largest header would take gigabytes, and would hide repeated
// keys.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  SafetensorsHeader Take() { return std::move(header_); }
  const std::string& error() const { return error_; }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) return Enter(Place::kRoot);
    if (place_ == Place::kRootValue)
      return Enter(name_ == "__metadata__" ? Place::kMetadata : Place::kTensor);
    return Unexpected("an object");
  }
  bool end_object() override {
    if (place_ == Place::kRoot) return Enter(Place::kEnd);
    if (place_ == Place::kTensor && !FinishTensor()) return false;
    return Enter(Place::kRoot);
  }
  bool start_array(size_t) override {
    if (place_ == Place::kTensorValue && field_ == "shape" && !has_shape_) {
      has_shape_ = true;
      return Enter(Place::kShape);
    }
    if (place_ == Place::kTensorValue && field_ == "data_offsets" &&
        offsets_.empty()) {
      return Enter(Place::kOffsets);
    }
    return Unexpected("a list");
  }
  bool end_array() override { return Enter(Place::kTensor); }

  bool key(std::string& key) override {
    if (place_ == Place::kRoot) {
      name_ = std::move(key);
      if (header_.contains(name_) || (name_ == "__metadata__" && has_metadata_))
        return Fail("appears twice");
      has_metadata_ |= name_ == "__metadata__";
      return Enter(Place::kRootValue);
    }
    if (place_ == Place::kMetadata) return Enter(Place::kMetadataValue);
    field_ = std::move(key);
    if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets")
      return Fail(fmt::format("unknown field {:?}", field_));
    return Enter(Place::kTensorValue);
  }
  bool string(std::string& value) override {
    if (place_ == Place::kMetadataValue) return Enter(Place::kMetadata);
    if (place_ != Place::kTensorValue || field_ != "dtype")
      return Unexpected("a string");
    if (!entry_.dtype.empty() || value.empty())
      return Fail("dtype is empty or given twice");
    entry_.dtype = std::move(value);
    return Enter(Place::kTensor);
  }
  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return Fail("shape: a dimension overflows");
      if (entry_.shape.size() == kMaxRank)
        return Fail(fmt::format("shape: more than {} dimensions", kMaxRank));
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ != Place::kOffsets) return Unexpected("a number");
    if (offsets_.size() == 2) return Fail("data_offsets: more than two");
    offsets_.push_back(value);
    return true;
  }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(int64_t) override {
    return Unexpected("a negative number");
  }
  bool number_float(double, const std::string&) override {
    return Unexpected("a number that is no integer");
  }
  bool binary(json::binary_t&) override { return Unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&,
                   const json::exception& error) override {
    error_ = fmt::format("header is not valid JSON at byte {}: {}", position,
                         error.what());
    return false;
  }

 private:
  enum class Place {
    kStart,
    kRoot,
    kRootValue,
    kMetadata,
    kMetadataValue,
    kTensor,
    kTensorValue,
    kShape,
    kOffsets,
    kEnd
  };

  bool Enter(Place place) {
    place_ = place;
    return true;
  }
  bool Fail(std::string_view reason) {
    error_ = name_.empty() && place_ == Place::kStart
                 ? fmt::format("header: {}", reason)
                 : fmt::format("tensor {:?}: {}", name_, reason);
    return false;
  }
  bool Unexpected(std::string_view what) {
    return Fail(fmt::format("{} in an unexpected place", what));
  }

  bool FinishTensor() {
    if (entry_.dtype.empty()) return Fail("dtype: missing");
    if (!has_shape_) return Fail("shape: missing");
    if (offsets_.size() != 2) return Fail("data_offsets: not two numbers");
    if (offsets_[0] > offsets_[1])
      return Fail("data_offsets: end before begin");
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header_.emplace(name_, std::exchange(entry_, {}));
    offsets_.clear();
    has_shape_ = false;
    return true;
  }

  Place place_ = Place::kStart;
  std::string name_, field_;
  bool has_metadata_ = false;
  bool has_shape_ = false;
  SafetensorsEntry entry_;  // being read, with offsets_
  std::vector<uint64_t> offsets_;
  SafetensorsHeader header_;
  std::string error_;
};

Status CheckLength(const std::string& name, const SafetensorsEntry& entry) {
  const auto* dtype =
      std::ranges::find(kKnownDTypes, entry.dtype, &KnownDType::name);
  if (dtype == std::end(kKnownDTypes)) return OkStatus();
  std::optional<uint64_t> bytes = dtype->bits / 8;
  for (const int64_t dimension : entry.shape) {
    bytes = CheckedMul<uint64_t>(*bytes, static_cast<uint64_t>(dimension));
    if (!bytes.has_value())
      return InvalidArgument("tensor {:?}: shape overflows", name);
  }
  if (*bytes != entry.end - entry.begin) {
    return InvalidArgument(
        "tensor {:?}: shape and dtype take {} bytes, data_offsets {}", name,
        *bytes, entry.end - entry.begin);
  }
  return OkStatus();
}

// Makes the offsets absolute once the tensors are known to tile the data.
Status CheckTiling(SafetensorsHeader& header, uint64_t data_begin,
                   uint64_t data_size) {
  std::vector<SafetensorsHeader::pointer> by_offset;
  by_offset.reserve(header.size());
  for (auto& item : header) by_offset.push_back(&item);
  std::ranges::sort(by_offset, {}, [](const auto* item) {
    return std::pair(item->second.begin, item->second.end);
  });
  uint64_t covered = 0;
  for (auto* item : by_offset) {
    auto& [name, entry] = *item;
    if (entry.begin != covered) {
      return InvalidArgument(
          "tensor {:?}: data_offsets begin at {}, which {} the tensor before "
          "it, ending at {}",
          name, entry.begin,
          entry.begin < covered ? "overlaps" : "leaves a gap after", covered);
    }
    if (entry.end > data_size) {
      return InvalidArgument(
          "tensor {:?}: data_offsets end at {}, beyond the {} bytes of data",
          name, entry.end, data_size);
    }
    covered = entry.end;
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  if (covered != data_size) {
    return InvalidArgument("{} bytes of data after the last tensor",
                           data_size - covered);
  }
  return OkStatus();
}

}  // namespace

StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    std::span<const std::byte> file, uint64_t file_size) {
  if (file_size < kLengthBytes || file.size() < kLengthBytes)
    return InvalidArgument("{} bytes are too short for a header", file_size);
  uint64_t header_size = 0;
  for (size_t i = kLengthBytes; i-- > 0;)
    header_size = header_size << 8 | std::to_integer<uint64_t>(file[i]);
  if (header_size > kMaxSafetensorsHeaderBytes) {
    return InvalidArgument("header of {} bytes is over the limit of {}",
                           header_size, kMaxSafetensorsHeaderBytes);
  }
  if (header_size > file_size - kLengthBytes ||
      header_size > file.size() - kLengthBytes) {
    return InvalidArgument("header of {} bytes reaches beyond the file of {}",
                           header_size, file_size);
  }
  const std::string_view text(
      reinterpret_cast<const char*>(file.data()) + kLengthBytes, header_size);
  HeaderReader reader;
  if (!json::sax_parse(text, &reader))
    return InvalidArgument("{}", reader.error());
  SafetensorsHeader header = reader.Take();
  for (const auto& [name, entry] : header)
    RETURN_IF_ERROR(CheckLength(name, entry));
  const uint64_t data_begin = kLengthBytes + header_size;
  RETURN_IF_ERROR(CheckTiling(header, data_begin, file_size - data_begin));
  return header;
}

std::optional<DType> WeightDType(std::string_view safetensors_dtype) {
  if (safetensors_dtype == "F32") return DType::kFloat32;
  if (safetensors_dtype == "F16") return DType::kFloat16;
  if (safetensors_dtype == "BF16") return DType::kBFloat16;
  return std::nullopt;
}

StatusOr<SafetensorsIndex> ParseSafetensorsIndex(std::string_view text) {
  ASSIGN_OR_RETURN(const json document,
                   ParseStrictJson(text, {.bytes_max = kMaxIndexBytes}));
  if (!document.is_object() || !document.contains("weight_map") ||
      !document["weight_map"].is_object()) {
    return InvalidArgument("weight_map: missing or not an object");
  }
  SafetensorsIndex index;
  std::set<std::string_view> shards;
  for (const auto& [tensor, shard] : document["weight_map"].items()) {
    if (!shard.is_string())
      return InvalidArgument("weight_map: {:?}: expected a file name", tensor);
    const auto& file = shard.get_ref<const std::string&>();
    if (!file.ends_with(".safetensors") || file.front() == '.' ||
        file.find('/') != std::string::npos ||
        file.find('\0') != std::string::npos || file.size() > 255) {
      return InvalidArgument(
          "weight_map: {:?}: {:?} is not the plain name of a safetensors file",
          tensor, file);
    }
    shards.insert(file);
    if (shards.size() > kMaxShards)
      return InvalidArgument("weight_map: more than {} files", kMaxShards);
    index.emplace(tensor, file);
  }
  if (index.empty()) return InvalidArgument("weight_map: empty");
  return index;
}

}  // namespace tidepool::model
