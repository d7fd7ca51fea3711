#include "controller/reconcilers/growth_gate.h"

#include <algorithm>
#include <string>
#include <utility>
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

uint32_t Each(const std::shared_ptr<const Child>& set) {
  return set == nullptr ? 0 : set->figures->devices;
}

bool Grows(const PoolState& pool) {
  return pool.granted > Wanted(pool.observed->stateful_set) ||
         (WantsLargerPods(pool, Each(pool.observed->stateful_set)) &&
          !pool.waits_for_room && !pool.spec.rollout.is_paused);
}

// It stays as it is.
void Hold(PoolState& pool, const std::shared_ptr<const Child>& set) {
  pool.granted = std::min(pool.granted, Wanted(set));
  pool.waits_for_room = WantsLargerPods(pool, Each(set));
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
      Hold(pool, pool.observed->stateful_set);
  return granted;
}

StatusOr<std::shared_ptr<const Child>> GrowthGate::Mark(
    Json set, uint64_t term, FamilyMemory& memory) const {
  const uint64_t digest = DigestOf(set);
  const std::string text = std::to_string(term);
  const Json& metadata = set["metadata"];
  const kube::ObjectKey key{.space = metadata.value("namespace", ""),
                            .name = metadata.value("name", "")};
  const Json annotations = metadata.value("annotations", Json::object());
  if (annotations.value(kTermAnnotation, "") != text) {
    ASSIGN_OR_RETURN(
        set, client_.Patch(
                 kube::kStatefulSet, key, kube::PatchType::kMerge,
                 {{"metadata",
                   {{"resourceVersion", metadata.value("resourceVersion", "")},
                    {"annotations", {{kTermAnnotation, text}}}}}}));
  }
  ASSIGN_OR_RETURN(Child child, ToWorkload(set));
  auto marked = std::make_shared<const Child>(std::move(child));
  memory.NoteMarked(kube::kStatefulSet, digest, marked, clock_.Now());
  return marked;
}

StatusOr<GrowthGate::WorkersByPool> GrowthGate::Look(
    const kube::ObjectKey& family, uint64_t term, FamilyMemory& memory) const {
  const kube::ListOptions workers{
      .space = family.space,
      .label_selector = std::string(kFamilyLabel) + "=" + family.name + "," +
                        std::string(kComponentLabel) + "=worker"};
  std::vector<Json> sets;
  RETURN_IF_ERROR(client_
                      .List(kube::kStatefulSet, workers,
                            [&](Json& set) { sets.push_back(std::move(set)); })
                      .status());
  WorkersByPool there;
  for (Json& set : sets) {
    const std::string pool =
        set.value("/metadata/name"_json_pointer, std::string());
    ASSIGN_OR_RETURN(there[pool].set, Mark(std::move(set), term, memory));
  }
  // After the marks: what is not here by now is made on a leader's word that
  // comes after ours.
  const auto take = [&](Json& object) {
    StatusOr<PodView> pod = ToPodView(object);
    if (!pod.ok()) return;
    auto& pods = there[pod->pool].pods;
    pods.push_back(std::make_shared<const PodView>(*std::move(pod)));
  };
  RETURN_IF_ERROR(client_.List(kube::kPod, workers, take).status());
  return there;
}

Status GrowthGate::Grant(FamilyState& family, uint64_t term,
                         FamilyMemory& memory) const {
  const kube::ObjectKey& key = family.observed->key;
  ASSIGN_OR_RETURN(WorkersByPool there, Look(key, term, memory));
  // A budget that was cut a moment ago counts as well.
  ASSIGN_OR_RETURN(const Json resource, client_.Get(kube::kKVCachePool, key));
  Problems problems;
  std::optional<uint32_t> budget =
      ReadKVCachePool(key.name, resource.value("spec", Json()), problems)
          .rebalancing.accelerator_budget;
  bool is_settled = !IsBudgetUnreadable(problems);
  std::vector<Workers> of_pools;
  std::vector<Holding> holdings;
  for (const PoolState& pool : family.pools) {
    const auto found = there.extract(pool.observed->name());
    of_pools.push_back(found.empty() ? Workers() : std::move(found.mapped()));
    const Workers& workers = of_pools.back();
    is_settled = is_settled && !IsCatchingUp(workers.set);
    holdings.push_back(HoldingOf(workers.set.get(), workers.pods));
  }
  // Of pools that are gone, or that we were not told of yet.
  for (const auto& [name, workers] : there)
    if (budget.has_value())
      *budget -= static_cast<uint32_t>(std::min<uint64_t>(
          *budget, HoldingOf(workers.set.get(), workers.pods).devices));
  GrantWithin(budget, holdings, family.pools);
  if (!is_settled)
    for (size_t i = 0; i < of_pools.size(); ++i)
      Hold(family.pools[i], of_pools[i].set);
  return OkStatus();
}

}  // namespace tidepool::reconcilers
