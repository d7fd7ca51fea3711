// Typed access to the fields of a parsed tokenizer.json; every error names the
// path of the field.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "dataplane/base/status.h"

namespace tidepool::model::internal {

// A JSON value and its path ("model.merges[17]").
class JsonField {
 public:
  JsonField(simdjson::dom::element element, std::string path)
      : element_(element), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool is_null() const { return element_.is_null(); }
  bool is_string() const { return element_.is_string(); }

  // Errors: kInvalidArgument naming the path if the type is another.
  StatusOr<simdjson::dom::object> Object() const;
  StatusOr<simdjson::dom::array> Array() const;
  StatusOr<std::string_view> String() const;
  StatusOr<bool> Bool() const;
  // Errors: also if outside [minimum, maximum].
  StatusOr<int64_t> Integer(int64_t minimum, int64_t maximum) const;
  // One character as UTF-8.
  StatusOr<std::string> Character() const;

  // The member `name` of this object; nullopt if absent. A name given twice is
  // an error.
  StatusOr<std::optional<JsonField>> Find(std::string_view name) const;
  // Errors: kInvalidArgument if absent.
  StatusOr<JsonField> Get(std::string_view name) const;
  // `fallback` if absent or null.
  StatusOr<bool> BoolOr(std::string_view name, bool fallback) const;
  // The value of member "type".
  StatusOr<std::string_view> Type() const;

  JsonField Element(simdjson::dom::element element, size_t index) const;

 private:
  Status Expected(std::string_view type) const;

  simdjson::dom::element element_;
  std::string path_;
};

}  // namespace tidepool::model::internal
