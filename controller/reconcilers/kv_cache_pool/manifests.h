// The objects of a KVCachePool itself: its conductors and what is around them.
#pragma once

#include <string>
#include <vector>

#include "controller/reconcilers/kv_cache_pool/spec.h"
#include "controller/reconcilers/manifest.h"

namespace tidepool::reconcilers {

// What decides over the objects beside the spec.
struct ConductorContext {
  FamilyScope scope;  // with the version that the fleet runs
  std::string model;  // for --model
  ImageSpec image;    // repository set
  std::vector<std::string> worker_pools;  // names, sorted
  std::string controller_space;  // whose pods may use the control ports
};

Manifest ConductorDeployment(const KVCachePoolSpec& spec,
                             const ConductorContext& context);
Manifest ConductorService(const KVCachePoolSpec& spec,
                          const FamilyScope& scope);
// Of conductors and workers: no rights, no token.
std::vector<Manifest> ServiceAccounts(const FamilyScope& scope);
std::vector<Manifest> NetworkPolicies(const KVCachePoolSpec& spec,
                                      const ConductorContext& context);
// Ingress or HTTPRoute: requests are not buffered and may take as long as a
// conductor lets them.
std::vector<Manifest> Routes(const KVCachePoolSpec& spec,
                             const FamilyScope& scope);
// With `key` as its one entry; for creation only.
Manifest ApiKeySecret(const FamilyScope& scope, const std::string& key);

}  // namespace tidepool::reconcilers
