// Paths of the API.
#pragma once

#include <string>
#include <string_view>

#include "controller/kube/client.h"

namespace tidepool::kube::internal {

// "/api/v1/namespaces/space/pods/name/status"; without `name` the collection,
// without `space` that of all namespaces.
std::string ResourcePath(const ResourceType& type, std::string_view space,
                         std::string_view name = "",
                         std::string_view subresource = "");

// Appends "?name=value" or "&name=value", escaped.
void AddQuery(std::string& url, std::string_view name, std::string_view value);

}  // namespace tidepool::kube::internal
