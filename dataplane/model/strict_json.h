// JSON documents from outside, parsed with bounds and read with exact types.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "dataplane/base/status.h"

namespace tidepool::model {

struct JsonLimits {
  size_t bytes_max = 16 << 20;
  int depth_max = 64;
};

// Parses one document. Refuses what nlohmann-json alone would let pass: deep
// nesting and repeated keys.
// Errors: kInvalidArgument with the place of the mistake; kResourceExhausted
// over `limits.bytes_max`.
StatusOr<nlohmann::json> ParseStrictJson(std::string_view text,
                                         JsonLimits limits = {});

// `value` if it is an integer within [min, max]. Errors: kInvalidArgument with
// `path` in front.
StatusOr<int64_t> IntegerOf(const nlohmann::json& value, std::string_view path,
                            int64_t min, int64_t max);

// Reads the fields of one JSON object by exact type: 1.0 is no integer, "1" no
// number, and null is as good as absent. Errors are kInvalidArgument and name
// the field with `prefix` in front. Borrows the object.
class JsonFields {
 public:
  explicit JsonFields(const nlohmann::json& object, std::string prefix = "");

  // nullptr if absent or null.
  const nlohmann::json* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // Within [min, max]; nullopt if absent.
  StatusOr<std::optional<int64_t>> OptionalInt(std::string_view name,
                                               int64_t min, int64_t max) const;
  StatusOr<std::optional<double>> OptionalNumber(std::string_view name,
                                                 double min, double max) const;
  StatusOr<std::optional<std::string>> OptionalString(
      std::string_view name) const;
  StatusOr<std::optional<bool>> OptionalBool(std::string_view name) const;

  // As above, but absent is an error.
  StatusOr<int64_t> Int(std::string_view name, int64_t min, int64_t max) const;

  std::string PathOf(std::string_view name) const;

 private:
  const nlohmann::json& object_;
  std::string prefix_;
};

}  // namespace tidepool::model
