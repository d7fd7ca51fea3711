// Fields of objects that somebody else wrote: whatever is not there, or is of
// another type, reads as absent. What the API server says is read as carefully
// as what users write, for an older version may have stored it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "controller/kube/client.h"

namespace tidepool::kube {

// `object[name]`, which lives as long as `object`; null if there is none.
const Json& At(const Json& object, std::string_view name);
// "" unless it is a string.
std::string TextAt(const Json& object, std::string_view name);
// `otherwise` unless it is an integer.
int64_t IntegerAt(const Json& object, std::string_view name,
                  int64_t otherwise = 0);

}  // namespace tidepool::kube
