#include "controller/reconcilers/growth_gate.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/holding.h"
#include "controller/reconcilers/names.h"

namespace tidepool::reconcilers {
namespace {

// Of a StatefulSet: of the leader that last let something grow.
constexpr std::string_view kTermAnnotation = "tidepool.dev/term";

int32_t Wanted(const std::shared_ptr<const Child>& set) {
  return set == nullptr ? 0 : set->figures->wanted;
}

bool Grows(const PoolState& pool) {
  return pool.granted > Wanted(pool.observed->stateful_set);
}

// Pods that were made for what it was told before may still come.
bool IsCatchingUp(const std::shared_ptr<const Child>& set) {
  return set != nullptr &&
         set->figures->observed_generation < set->figures->generation;
}

}  // namespace

Status GrowthGate::Admit(FamilyState& family, FamilyMemory& memory) const {
  if (!family.spec.rebalancing.accelerator_budget.has_value() ||
      std::ranges::none_of(family.pools, Grows))
    return OkStatus();
  const std::optional<uint64_t> term = term_();
  const Status granted =
      term.has_value() ? Grant(family, *term, memory)
                       : MakeError(Code::kCancelled, "no longer the leader");
  if (!granted.ok())
    for (PoolState& pool : family.pools)
      pool.granted =
          std::min(pool.granted, Wanted(pool.observed->stateful_set));
  return granted;
}

// Null if there is none.
StatusOr<std::shared_ptr<const Child>> GrowthGate::Mark(
    const kube::ObjectKey& key, uint64_t term, FamilyMemory& memory) const {
  StatusOr<Json> set = client_.Get(kube::kStatefulSet, key);
  if (set.status().code() == Code::kNotFound) return nullptr;
  RETURN_IF_ERROR(set.status());
  const uint64_t digest = DigestOf(*set);
  const std::string text = std::to_string(term);
  const Json& metadata = (*set)["metadata"];
  const Json annotations = metadata.value("annotations", Json::object());
  if (annotations.value(kTermAnnotation, "") != text)
    set = client_.Patch(
        kube::kStatefulSet, key, kube::PatchType::kMerge,
        {{"metadata",
          {{"resourceVersion", metadata.value("resourceVersion", "")},
           {"annotations", {{kTermAnnotation, text}}}}}});
  RETURN_IF_ERROR(set.status());
  ASSIGN_OR_RETURN(Child child, ToWorkload(*set));
  auto marked = std::make_shared<const Child>(std::move(child));
  memory.NoteMarked(kube::kStatefulSet, digest, marked, clock_.Now());
  return marked;
}

Status GrowthGate::Grant(FamilyState& family, uint64_t term,
                         FamilyMemory& memory) const {
  bool is_settled = true;
  std::vector<std::shared_ptr<const Child>> sets;
  for (const PoolState& pool : family.pools) {
    ASSIGN_OR_RETURN(std::shared_ptr<const Child> set,
                     Mark(pool.observed->resource->key, term, memory));
    is_settled = is_settled && !IsCatchingUp(set);
    sets.push_back(std::move(set));
  }
  // After the marks: what is not here by now is made on a leader's word that
  // comes after ours.
  std::map<std::string, std::vector<std::shared_ptr<const PodView>>> pods;
  const kube::ObjectKey& key = family.observed->key;
  const kube::ListOptions workers{
      .space = key.space,
      .label_selector = std::string(kFamilyLabel) + "=" + key.name + "," +
                        std::string(kComponentLabel) + "=worker"};
  RETURN_IF_ERROR(
      client_
          .List(kube::kPod, workers,
                [&](Json& object) {
                  StatusOr<PodView> pod = ToPodView(object);
                  if (pod.ok())
                    pods[pod->pool].push_back(
                        std::make_shared<const PodView>(*std::move(pod)));
                })
          .status());
  // A budget that was cut a moment ago counts as well.
  ASSIGN_OR_RETURN(const Json resource, client_.Get(kube::kKVCachePool, key));
  Problems problems;
  const std::optional<uint32_t> budget =
      ReadKVCachePool(key.name, resource.value("spec", Json()), problems)
          .rebalancing.accelerator_budget;
  std::vector<Holding> holdings;
  for (size_t i = 0; i < sets.size(); ++i)
    holdings.push_back(
        HoldingOf(sets[i].get(), pods[family.pools[i].observed->name()]));
  GrantWithin(budget, holdings, family.pools);
  if (!is_settled)
    for (size_t i = 0; i < sets.size(); ++i)
      family.pools[i].granted =
          std::min(family.pools[i].granted, Wanted(sets[i]));
  return OkStatus();
}

}  // namespace tidepool::reconcilers
