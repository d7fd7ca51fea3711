#include "dataplane/model/strict_json.h"

#include <cmath>
#include <exception>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace tidepool::model {
namespace {

using nlohmann::json;

// Watches a parse and stops it, by exception, at the first broken rule.
class ParseGuard {
 public:
  struct Refused {
    std::string reason;
  };

  explicit ParseGuard(int depth_max) : depth_max_(depth_max) {}

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start ||
        event == json::parse_event_t::array_start) {
      if (depth >= depth_max_)
        throw Refused{fmt::format("nested deeper than {} levels", depth_max_)};
      if (event == json::parse_event_t::object_start) keys_.emplace_back();
    } else if (event == json::parse_event_t::key) {
      auto key = parsed.get<std::string>();
      if (!keys_.back().insert(key).second)
        throw Refused{fmt::format("key {:?} appears twice", key)};
    } else if (event == json::parse_event_t::object_end) {
      keys_.pop_back();
    }
    return true;
  }

 private:
  int depth_max_;
  std::vector<std::set<std::string>> keys_;  // of the objects now open
};

Status WrongType(std::string_view path, std::string_view wanted,
                 const json& value) {
  return InvalidArgument("{}: expected {}, found {}", path, wanted,
                         value.type_name());
}

}  // namespace

StatusOr<json> ParseStrictJson(std::string_view text, JsonLimits limits) {
  if (text.size() > limits.bytes_max) {
    return ResourceExhausted("JSON of {} bytes is over the limit of {}",
                             text.size(), limits.bytes_max);
  }
  try {
    ParseGuard guard(limits.depth_max);
    return json::parse(text, std::ref(guard));
  } catch (const ParseGuard::Refused& refused) {
    return InvalidArgument("JSON refused: {}", refused.reason);
  } catch (const json::exception& error) {
    return InvalidArgument("not valid JSON: {}", error.what());
  }
}

StatusOr<int64_t> IntegerOf(const json& value, std::string_view path,
                            int64_t min, int64_t max) {
  if (!value.is_number_integer()) return WrongType(path, "an integer", value);
  // Beyond int64_t the value is held unsigned and would wrap when cast.
  const bool huge =
      value.is_number_unsigned() &&
      value.get<uint64_t>() >
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (huge || value.get<int64_t>() < min || value.get<int64_t>() > max) {
    return InvalidArgument("{}: {} is outside [{}, {}]", path, value.dump(),
                           min, max);
  }
  return value.get<int64_t>();
}

JsonFields::JsonFields(const json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

std::string JsonFields::PathOf(std::string_view name) const {
  return fmt::format("{}{}", prefix_, name);
}

const json* JsonFields::Find(std::string_view name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

StatusOr<std::optional<int64_t>> JsonFields::OptionalInt(std::string_view name,
                                                         int64_t min,
                                                         int64_t max) const {
  const json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  return IntegerOf(*value, PathOf(name), min, max);
}

StatusOr<std::optional<double>> JsonFields::OptionalNumber(
    std::string_view name, double min, double max) const {
  const json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return WrongType(PathOf(name), "a number", *value);
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {  // NaN fails too
    return InvalidArgument("{}: {} is outside [{}, {}]", PathOf(name),
                           value->dump(), min, max);
  }
  return number;
}

StatusOr<std::optional<std::string>> JsonFields::OptionalString(
    std::string_view name) const {
  const json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return WrongType(PathOf(name), "a string", *value);
  return value->get<std::string>();
}

StatusOr<std::optional<bool>> JsonFields::OptionalBool(
    std::string_view name) const {
  const json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean())
    return WrongType(PathOf(name), "true or false", *value);
  return value->get<bool>();
}

StatusOr<int64_t> JsonFields::Int(std::string_view name, int64_t min,
                                  int64_t max) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> value,
                   OptionalInt(name, min, max));
  if (!value.has_value()) return InvalidArgument("{}: missing", PathOf(name));
  return *value;
}

}  // namespace tidepool::model
