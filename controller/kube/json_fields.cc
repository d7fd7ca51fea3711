#include "controller/kube/json_fields.h"

namespace tidepool::kube {

const Json& At(const Json& object, std::string_view name) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

std::string TextAt(const Json& object, std::string_view name) {
  const Json& value = At(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

int64_t IntegerAt(const Json& object, std::string_view name,
                  int64_t otherwise) {
  const Json& value = At(object, name);
  return value.is_number_integer() ? value.get<int64_t>() : otherwise;
}

}  // namespace tidepool::kube
