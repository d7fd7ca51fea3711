#include "dataplane/model/tokenizer_json.h"

#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {

Status JsonField::Expected(std::string_view type) const {
  return InvalidArgument("tokenizer.json: {}: must be {}", path_, type);
}

StatusOr<simdjson::dom::object> JsonField::Object() const {
  simdjson::dom::object object;
  if (element_.get(object)) return Expected("an object");
  return object;
}

StatusOr<simdjson::dom::array> JsonField::Array() const {
  simdjson::dom::array array;
  if (element_.get(array)) return Expected("an array");
  return array;
}

StatusOr<std::string_view> JsonField::String() const {
  std::string_view text;
  if (element_.get(text)) return Expected("a string");
  return text;
}

StatusOr<bool> JsonField::Bool() const {
  bool value;
  if (element_.get(value)) return Expected("true or false");
  return value;
}

StatusOr<int64_t> JsonField::Integer(int64_t minimum, int64_t maximum) const {
  int64_t value;
  if (element_.get(value) || value < minimum || value > maximum) {
    return Expected(fmt::format("an integer from {} to {}", minimum, maximum));
  }
  return value;
}

StatusOr<std::string> JsonField::Character() const {
  ASSIGN_OR_RETURN(const std::string_view text, String());
  if (text.empty() || DecodeChar(text.data()).bytes != text.size()) {
    return Expected("one character");
  }
  return std::string(text);
}

StatusOr<std::optional<JsonField>> JsonField::Find(
    std::string_view name) const {
  ASSIGN_OR_RETURN(const simdjson::dom::object object, Object());
  std::optional<JsonField> found;
  for (const auto [key, value] : object) {
    if (key != name) continue;
    if (found.has_value()) {
      return InvalidArgument("tokenizer.json: {}: is given twice",
                             found->path());
    }
    found.emplace(value, path_.empty() ? std::string(name)
                                       : fmt::format("{}.{}", path_, name));
  }
  return found;
}

StatusOr<JsonField> JsonField::Get(std::string_view name) const {
  ASSIGN_OR_RETURN(std::optional<JsonField> field, Find(name));
  if (!field.has_value()) {
    return InvalidArgument("tokenizer.json: {}: \"{}\" is missing",
                           path_.empty() ? "the file" : path_, name);
  }
  return *std::move(field);
}

StatusOr<bool> JsonField::BoolOr(std::string_view name, bool fallback) const {
  ASSIGN_OR_RETURN(const std::optional<JsonField> field, Find(name));
  if (!field.has_value() || field->is_null()) return fallback;
  return field->Bool();
}

StatusOr<std::string_view> JsonField::Type() const {
  ASSIGN_OR_RETURN(const JsonField type, Get("type"));
  return type.String();
}

JsonField JsonField::Element(simdjson::dom::element element,
                             size_t index) const {
  return JsonField(element, fmt::format("{}[{}]", path_, index));
}

}  // namespace tidepool::model::internal
