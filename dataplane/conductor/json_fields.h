// Request bodies, read field by field with errors that name the field.
#pragma once

#include <simdjson.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/conductor/api_error.h"

namespace tidepool::conductor {

inline constexpr size_t kJsonDepthMax = 128;

// A whole request body, validated: UTF-8, nesting up to kJsonDepthMax, numbers
// within 64 bits or finite doubles. Must not move while elements are in use.
class JsonBody {
 public:
  // Errors: kInvalidArgument, code "invalid_json".
  Status Parse(std::string_view text);
  // Errors: kInvalidArgument if the body is no object.
  StatusOr<simdjson::dom::object> Object() const;
  simdjson::dom::element root() const { return root_; }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

// One value and where it stands in the body ("stop[1]"). Readers return
// kInvalidArgument with the field's path and what it should have been.
class JsonField {
 public:
  JsonField(std::string path, simdjson::dom::element value)
      : path_(std::move(path)), value_(value) {}

  const std::string& path() const { return path_; }
  simdjson::dom::element value() const { return value_; }
  bool is_null() const { return value_.is_null(); }
  bool is_array() const { return value_.is_array(); }
  bool is_string() const { return value_.is_string(); }
  bool is_object() const { return value_.is_object(); }

  // A whole number; 3.0 is one.
  StatusOr<int64_t> Int(int64_t min, int64_t max) const;
  StatusOr<double> Number(double min, double max) const;
  StatusOr<bool> Bool() const;
  StatusOr<std::string> String(size_t bytes_max) const;
  // Token ids in [0, vocab_size), at most `count_max`.
  StatusOr<std::vector<int32_t>> TokenIds(int64_t vocab_size,
                                          size_t count_max) const;
  StatusOr<std::vector<JsonField>> Array(size_t count_max) const;
  StatusOr<simdjson::dom::object> Object() const;

  Status Bad(std::string_view reason) const { return BadField(path_, reason); }

 private:
  std::string path_;
  simdjson::dom::element value_;
};

// The beginning of `text`, which is UTF-8, in whole characters: at most
// `bytes_max` bytes of it, for messages.
std::string_view Excerpt(std::string_view text, size_t bytes_max);

// The value as a tree of its own. Its depth is that of the body at most.
nlohmann::ordered_json ToTree(simdjson::dom::element value);

// What a field of an object means: reads `field` into `target`.
template <typename Target>
struct FieldRule {
  std::string_view name;
  Status (*read)(const JsonField& field, Target& target);
};

// Reads every field of `object` by its rule. A null is as good as absent.
// Errors: those of the rules; kInvalidArgument for a repeated key and, unless
// null, for one without a rule.
template <typename Target, size_t kCount>
Status ReadFields(simdjson::dom::object object, std::string_view prefix,
                  const std::array<FieldRule<Target>, kCount>& rules,
                  Target& target) {
  std::bitset<kCount> seen;
  for (const auto& [key, value] : object) {
    std::string path = std::string(prefix);
    path += key;
    size_t index = 0;
    while (index < kCount && rules[index].name != key) ++index;
    if (index == kCount) {
      if (value.is_null()) continue;
      path.resize(Excerpt(path, 100).size());
      return WithApiDetails(
          InvalidArgument("`{}` is not a field of this request", path), path,
          "unknown_parameter");
    }
    if (seen[index]) return BadField(path, "is given twice");
    seen.set(index);
    if (value.is_null()) continue;
    RETURN_IF_ERROR(rules[index].read(JsonField(path, value), target));
  }
  return OkStatus();
}

}  // namespace tidepool::conductor
