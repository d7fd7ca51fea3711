#include "controller/reconcilers/manifest.h"

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "controller/reconcilers/names.h"

namespace tidepool::reconcilers {
namespace {

constexpr size_t kLabelBytesMax = 63;

bool IsAlphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9');
}

// A tag may be longer than a label, and end otherwise.
bool IsLabelValue(std::string_view text) {
  return !text.empty() && text.size() <= kLabelBytesMax &&
         IsAlphanumeric(text.front()) && IsAlphanumeric(text.back());
}

}  // namespace

Json FamilyScope::Labels(std::string_view component) const {
  Json labels = Selector(component);
  labels[kManagedByLabel] = kManagedBy;
  labels[kFamilyLabel] = pool;
  if (IsLabelValue(version)) labels["app.kubernetes.io/version"] = version;
  return labels;
}

Json FamilyScope::Selector(std::string_view component) const {
  return {{"app.kubernetes.io/name", kAppName},
          {"app.kubernetes.io/instance", pool},
          {kComponentLabel, component}};
}

Manifest FamilyScope::Make(const kube::ResourceType& type,
                           std::string_view name,
                           std::string_view component) const {
  Manifest manifest{.type = &type,
                    .key = {.space = space, .name = std::string(name)}};
  manifest.object = kube::Skeleton(type, manifest.key);
  Json& metadata = manifest.object["metadata"];
  metadata["labels"] = Labels(component);
  metadata["ownerReferences"] =
      Json::array({kube::OwnerReference(*owner.type, owner.name, owner.uid)});
  return manifest;
}

Manifest DisruptionBudget(const FamilyScope& scope, std::string_view name,
                          std::string_view component, const Json& selector) {
  Manifest budget = scope.Make(kube::kPodDisruptionBudget, name, component);
  budget.object["spec"] = {{"maxUnavailable", 1},
                           {"selector", {{"matchLabels", selector}}},
                           // Pods that are not ready may go at any time.
                           {"unhealthyPodEvictionPolicy", "AlwaysAllow"}};
  return budget;
}

}  // namespace tidepool::reconcilers
