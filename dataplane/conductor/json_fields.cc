#include "dataplane/conductor/json_fields.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace tidepool::conductor {

namespace dom = simdjson::dom;

Status JsonBody::Parse(std::string_view text) {
  // Room for the largest depth, then for the text.
  simdjson::error_code error =
      parser_.allocate(std::max<size_t>(text.size(), 64), kJsonDepthMax);
  if (error == simdjson::SUCCESS)
    error = parser_.parse(text.data(), text.size()).get(root_);
  if (error == simdjson::SUCCESS) return OkStatus();
  if (error == simdjson::DEPTH_ERROR)
    return WithApiDetails(
        InvalidArgument("the body nests deeper than {}", kJsonDepthMax), "",
        "invalid_json");
  return WithApiDetails(InvalidArgument("the body is not valid JSON: {}",
                                        simdjson::error_message(error)),
                        "", "invalid_json");
}

StatusOr<dom::object> JsonBody::Object() const {
  dom::object object;
  if (root_.get(object) != simdjson::SUCCESS)
    return WithApiDetails(InvalidArgument("the body must be a JSON object"), "",
                          "invalid_json");
  return object;
}

StatusOr<int64_t> JsonField::Int(int64_t min, int64_t max) const {
  int64_t number = 0;
  bool whole = value_.get(number) == simdjson::SUCCESS;
  if (double real = 0; !whole && value_.get(real) == simdjson::SUCCESS) {
    // ±2⁶³ are exact as doubles, the upper one excluded.
    whole = std::trunc(real) == real && real >= -0x1p63 && real < 0x1p63;
    if (whole) number = static_cast<int64_t>(real);
  }
  if (!whole || number < min || number > max)
    return Bad(fmt::format("must be an integer from {} to {}", min, max));
  return number;
}

StatusOr<double> JsonField::Number(double min, double max) const {
  double number = 0;
  if (value_.get(number) != simdjson::SUCCESS || !(number >= min) ||
      !(number <= max))
    return Bad(fmt::format("must be a number from {} to {}", min, max));
  return number;
}

StatusOr<bool> JsonField::Bool() const {
  bool flag = false;
  if (value_.get(flag) != simdjson::SUCCESS)
    return Bad("must be true or false");
  return flag;
}

StatusOr<std::string> JsonField::String(size_t bytes_max) const {
  std::string_view text;
  if (value_.get(text) != simdjson::SUCCESS) return Bad("must be a string");
  if (text.size() > bytes_max)
    return Bad(fmt::format("must have at most {} bytes", bytes_max));
  return std::string(text);
}

StatusOr<std::vector<int32_t>> JsonField::TokenIds(int64_t vocab_size,
                                                   size_t count_max) const {
  dom::array array;
  if (value_.get(array) != simdjson::SUCCESS)
    return Bad("must be a list of token ids");
  std::vector<int32_t> ids;
  ids.reserve(std::min(array.size(), count_max));
  for (const dom::element element : array) {
    if (ids.size() == count_max)
      return WithApiDetails(
          InvalidArgument("`{}` has more than the {} tokens of the context",
                          path_, count_max),
          path_, "context_length_exceeded");
    int64_t id = 0;
    if (element.get(id) != simdjson::SUCCESS)
      return Bad(fmt::format("has no integer at [{}]", ids.size()));
    if (id < 0 || id >= vocab_size)
      return Bad(fmt::format("has {} at [{}], no token id from 0 to {}", id,
                             ids.size(), vocab_size - 1));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

StatusOr<std::vector<JsonField>> JsonField::Array(size_t count_max) const {
  dom::array array;
  if (value_.get(array) != simdjson::SUCCESS) return Bad("must be a list");
  std::vector<JsonField> fields;
  for (const dom::element element : array) {
    if (fields.size() == count_max)
      return Bad(fmt::format("must have at most {} entries", count_max));
    fields.emplace_back(fmt::format("{}[{}]", path_, fields.size()), element);
  }
  return fields;
}

StatusOr<dom::object> JsonField::Object() const {
  dom::object object;
  if (value_.get(object) != simdjson::SUCCESS) return Bad("must be an object");
  return object;
}

std::string_view Excerpt(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  while (bytes_max > 0 && (text[bytes_max] & 0xC0) == 0x80) --bytes_max;
  return text.substr(0, bytes_max);
}

nlohmann::ordered_json ToTree(dom::element value) {
  switch (value.type()) {
    case dom::element_type::OBJECT: {
      nlohmann::ordered_json tree = nlohmann::ordered_json::object();
      // Its operator[] would look through all keys for each one.
      auto& members = tree.get_ref<nlohmann::ordered_json::object_t&>();
      for (const auto& [key, member] : dom::object(value))
        members.push_back({std::string(key), ToTree(member)});
      return tree;
    }
    case dom::element_type::ARRAY: {
      nlohmann::ordered_json tree = nlohmann::ordered_json::array();
      for (const dom::element element : dom::array(value))
        tree.push_back(ToTree(element));
      return tree;
    }
    case dom::element_type::STRING:
      return std::string(std::string_view(value));
    case dom::element_type::INT64:
      return int64_t(value);
    case dom::element_type::UINT64:
      return uint64_t(value);
    case dom::element_type::DOUBLE:
      return double(value);
    case dom::element_type::BOOL:
      return bool(value);
    case dom::element_type::NULL_VALUE:
      return nullptr;
  }
  return nullptr;
}

}  // namespace tidepool::conductor
