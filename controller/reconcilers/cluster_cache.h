// Everything the controller knows of the cluster, kept in step by informers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/kube/client.h"
#include "controller/reconcilers/observed.h"
#include "controller/runtime/informer.h"

namespace tidepool::reconcilers {

struct ClusterCacheOptions {
  std::string space;  // "": all namespaces
  uint64_t seed = 0;  // of jitter
};

// Thread-safe once its informers run.
class ClusterCache {
 public:
  explicit ClusterCache(const ClusterCacheOptions& options);
  ~ClusterCache();

  // To be started by the caller; they live as long as the cache.
  std::vector<runtime::InformerBase*> informers();
  // Called, on an informer's thread, with the family that something changed
  // in. Before the informers start.
  void OnChange(std::function<void(const kube::ObjectKey& family)> changed);

  // Every family that has a KVCachePool or a pool that refers to one; pools
  // that refer to none are one without a name. First those of which some status
  // does not speak of the spec as it is now.
  std::vector<kube::ObjectKey> Families() const;
  // What there is of a family; no resource and no pools: nothing.
  FamilyObserved Gather(const kube::ObjectKey& family) const;
  // Null if it is not there, or its kind is not watched.
  std::shared_ptr<const Child> Find(const kube::ResourceType& type,
                                    const kube::ObjectKey& key) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::reconcilers
