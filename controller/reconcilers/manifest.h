// Parts that all manifests have.
#pragma once

#include <string>
#include <string_view>

#include "controller/reconcilers/observed.h"
#include "controller/reconcilers/plan.h"

namespace tidepool::reconcilers {

// Who an object belongs to: it goes when its owner goes.
struct OwnerRef {
  const kube::ResourceType* type = nullptr;
  std::string name, uid;
};

// What all objects of one family have in common.
struct FamilyScope {
  std::string space;
  std::string pool;     // the KVCachePool's name
  std::string version;  // that the fleet runs; "" on what must not change
  OwnerRef owner;

  // "conductor" or "worker".
  Json Labels(std::string_view component) const;
  Json Selector(std::string_view component) const;

  // With kind, metadata and owner; the caller adds the rest.
  Manifest Make(const kube::ResourceType& type, std::string_view name,
                std::string_view component) const;
};

// A PodDisruptionBudget that lets one pod go at a time, so that a node can be
// drained even if there is only one.
Manifest DisruptionBudget(const FamilyScope& scope, std::string_view name,
                          std::string_view component, const Json& selector);

}  // namespace tidepool::reconcilers
