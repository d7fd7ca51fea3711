#include "controller/kube/client.h"

namespace tidepool::kube {

std::string ResourceType::ApiVersion() const {
  if (group.empty()) return std::string(version);
  return fmt::format("{}/{}", group, version);
}

std::string ObjectKey::ToString() const {
  return space.empty() ? name : fmt::format("{}/{}", space, name);
}

}  // namespace tidepool::kube
