#include "controller/reconcilers/cluster_cache.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <type_traits>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/names.h"
#include "controller/reconcilers/packed.h"

namespace tidepool::reconcilers {
namespace {

using runtime::Informer;

template <typename T>
kube::ObjectKey FamilyKey(const T& object) {
  return {.space = object.key.space, .name = object.family};
}

// Pools that name no family, which is wrong, are one without a name: somebody
// has to tell them. Other objects without one are none of ours.
template <typename T>
std::optional<kube::ObjectKey> FamilyOf(const Packed<T>* kept) {
  if (kept == nullptr) return std::nullopt;
  const std::shared_ptr<const T> object = kept->Unpack();
  if (!std::is_same_v<T, CustomResource> && object->family.empty())
    return std::nullopt;
  return FamilyKey(*object);
}

// One informer with its index by family.
template <typename T>
struct Watched {
  Watched(const ClusterCacheOptions& options, const kube::ResourceType& type,
          bool labelled, StatusOr<T> (*read)(const Json& object))
      : informer({.type = type,
                  .space = options.space,
                  .label_selector = labelled ? std::string(kManagedByLabel) +
                                                   "=" + std::string(kManagedBy)
                                             : std::string(),
                  // The Gateway API is an add-on.
                  .reflector = {.optional = type == kube::kHttpRoute},
                  .seed = options.seed},
                 [read](const Json& object) -> StatusOr<Packed<T>> {
                   ASSIGN_OR_RETURN(const T value, read(object));
                   return Packed<T>(value);
                 }),
        by_family(informer.AddIndex(
            [](const Packed<T>& kept, std::vector<std::string>& values) {
              if (const auto family = FamilyOf(&kept))
                values.push_back(family->ToString());
            })) {}

  void OnChange(const std::function<void(const kube::ObjectKey&)>& changed) {
    informer.AddHandler([changed](const kube::ObjectKey&,
                                  const Packed<T>* before,
                                  const Packed<T>* after) {
      const auto from = FamilyOf(before), to = FamilyOf(after);
      if (from.has_value()) changed(*from);
      if (to.has_value() && to != from) changed(*to);
    });
  }

  std::shared_ptr<const T> Get(const kube::ObjectKey& key) const {
    const auto kept = informer.Get(key);
    return kept == nullptr ? nullptr : kept->Unpack();
  }
  std::vector<std::shared_ptr<const T>> Of(
      const kube::ObjectKey& family) const {
    std::vector<std::shared_ptr<const T>> objects;
    for (const auto& kept : informer.ByIndex(by_family, family.ToString()))
      objects.push_back(kept->Unpack());
    return objects;
  }

  Informer<Packed<T>> informer;
  typename Informer<Packed<T>>::IndexId by_family;
};

Json ParseKept(const std::string& text) {
  // Written by ourselves from parsed JSON.
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

struct ClusterCache::Impl {
  explicit Impl(const ClusterCacheOptions& options)
      : families(options, kube::kKVCachePool, false, ToCustomResource),
        prefill(options, kube::kPrefillPool, false, ToCustomResource),
        decode(options, kube::kDecodePool, false, ToCustomResource),
        pods(options, kube::kPod, true, ToPodView),
        deployments(options, kube::kDeployment, true, ToWorkload),
        stateful_sets(options, kube::kStatefulSet, true, ToWorkload) {
    for (const kube::ResourceType* type :
         {&kube::kService, &kube::kServiceAccount, &kube::kPodDisruptionBudget,
          &kube::kNetworkPolicy, &kube::kIngress, &kube::kHttpRoute})
      plain.push_back({type, std::make_unique<Watched<Child>>(options, *type,
                                                              true, ToChild)});
  }

  const Watched<Child>* ChildrenOf(const kube::ResourceType& type) const {
    if (type == kube::kDeployment) return &deployments;
    if (type == kube::kStatefulSet) return &stateful_sets;
    const auto found = std::ranges::find_if(
        plain, [&](const Plain& entry) { return *entry.type == type; });
    return found == plain.end() ? nullptr : found->watched.get();
  }

  struct Plain {
    const kube::ResourceType* type;
    std::unique_ptr<Watched<Child>> watched;
  };

  Watched<CustomResource> families, prefill, decode;
  Watched<PodView> pods;
  Watched<Child> deployments, stateful_sets;
  std::vector<Plain> plain;
};

ClusterCache::ClusterCache(const ClusterCacheOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

ClusterCache::~ClusterCache() = default;

std::vector<runtime::InformerBase*> ClusterCache::informers() {
  std::vector<runtime::InformerBase*> all = {
      &impl_->families.informer,    &impl_->prefill.informer,
      &impl_->decode.informer,      &impl_->pods.informer,
      &impl_->deployments.informer, &impl_->stateful_sets.informer};
  for (const auto& entry : impl_->plain)
    all.push_back(&entry.watched->informer);
  return all;
}

void ClusterCache::OnChange(
    std::function<void(const kube::ObjectKey& family)> changed) {
  impl_->families.OnChange(changed);
  impl_->prefill.OnChange(changed);
  impl_->decode.OnChange(changed);
  impl_->pods.OnChange(changed);
  impl_->deployments.OnChange(changed);
  impl_->stateful_sets.OnChange(changed);
  for (const auto& entry : impl_->plain) entry.watched->OnChange(changed);
}

std::vector<kube::ObjectKey> ClusterCache::Families() const {
  std::set<kube::ObjectKey> keys, behind;
  for (const auto* watched :
       {&impl_->families, &impl_->prefill, &impl_->decode}) {
    for (const auto& kept : watched->informer.List()) {
      const auto resource = kept->Unpack();
      const kube::ObjectKey key = FamilyKey(*resource);
      if (resource->deleting ||
          resource->generation != resource->observed_generation)
        behind.insert(key);
      keys.insert(key);
    }
  }
  std::vector<kube::ObjectKey> families(behind.begin(), behind.end());
  std::ranges::set_difference(keys, behind, std::back_inserter(families));
  return families;
}

FamilyObserved ClusterCache::Gather(const kube::ObjectKey& family) const {
  FamilyObserved observed{.key = family};
  observed.resource = impl_->families.Get(family);
  if (observed.resource != nullptr) {
    observed.spec = ParseKept(observed.resource->spec);
    observed.status = ParseKept(observed.resource->status);
  }
  for (const bool is_prefill : {true, false}) {
    for (auto& resource :
         (is_prefill ? impl_->prefill : impl_->decode).Of(family)) {
      WorkerPoolObserved pool{.is_prefill = is_prefill};
      pool.spec = ParseKept(resource->spec);
      pool.status = ParseKept(resource->status);
      pool.stateful_set = impl_->stateful_sets.Get(resource->key);
      pool.resource = std::move(resource);
      observed.pools.push_back(std::move(pool));
    }
  }
  observed.deployment = impl_->deployments.Get(
      {.space = family.space, .name = ConductorName(family.name)});
  for (const auto& entry : impl_->plain)
    for (auto& child : entry.watched->Of(family))
      observed.children.push_back({entry.type, std::move(child)});
  for (auto& pod : impl_->pods.Of(family)) {
    if (pod->is_conductor) {
      observed.conductors.push_back(std::move(pod));
      continue;
    }
    const auto owner = std::ranges::find_if(
        observed.pools, [&](const WorkerPoolObserved& pool) {
          return pool.name() == pod->pool;
        });
    if (owner != observed.pools.end()) owner->pods.push_back(std::move(pod));
  }
  for (WorkerPoolObserved& pool : observed.pools)
    std::ranges::sort(pool.pods, {},
                      [](const auto& pod) { return OrdinalOf(pod->key.name); });
  return observed;
}

std::shared_ptr<const Child> ClusterCache::Find(
    const kube::ResourceType& type, const kube::ObjectKey& key) const {
  const Watched<Child>* const children = impl_->ChildrenOf(type);
  return children == nullptr ? nullptr : children->Get(key);
}

}  // namespace tidepool::reconcilers
