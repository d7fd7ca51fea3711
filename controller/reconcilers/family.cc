#include "controller/reconcilers/family.h"

#include <algorithm>

#include "controller/kube/json_fields.h"
#include "controller/reconcilers/holding.h"
#include "dataplane/scheduling/planner.h"

namespace tidepool::reconcilers {
namespace {

std::optional<int32_t> ReplicasAt(const Json& object, const char* name) {
  const int64_t value = kube::IntegerAt(object, name, -1);
  if (value < 0 || value > kReplicasMax) return std::nullopt;
  return static_cast<int32_t>(value);
}

// A plan holds as long as the wish it started from.
int32_t Target(const KVCachePoolSpec& family, const WorkerPoolSpec& spec,
               const Json& status) {
  if (family.rebalancing.policy == scheduling::RebalancingPolicy::kOff)
    return spec.replicas;
  const auto planned = ReplicasAt(status, "plannedReplicas");
  const auto from = ReplicasAt(status, "plannedFromReplicas");
  if (!planned.has_value() || from != spec.replicas) return spec.replicas;
  return std::clamp(*planned, std::min(spec.min_replicas, spec.max_replicas),
                    spec.max_replicas);
}

// While the StatefulSet has not said which pods are outdated, the surge stays.
int32_t SurgeOf(const PoolState& pool) {
  const RolloutSpec& rollout = pool.spec.rollout;
  const auto& set = pool.observed->stateful_set;
  if (set == nullptr || !UpdateRevision(*pool.observed).empty())
    return Surge(rollout, pool.counts);
  return rollout.is_paused ? 0
                           : std::clamp(set->figures->wanted - pool.target, 0,
                                        rollout.max_surge);
}

PoolState ReadPool(const KVCachePoolSpec& family,
                   const WorkerPoolObserved& observed, bool may_resize) {
  PoolState pool{.observed = &observed};
  pool.spec = ReadWorkerPool(observed.is_prefill, observed.name(),
                             observed.spec, pool.problems);
  // What only the two specs together show.
  if (family.engine.is_emulated && pool.spec.kv_cache_bytes.has_value())
    pool.problems.push_back(
        "spec.kvCacheMemory: is not for an Emulated engine, whose memory is "
        "kv_capacity_tokens of its performance model");
  pool.counts = CountPods(observed.pods, UpdateRevision(observed));
  // What cannot be read right must not resize anything.
  may_resize = may_resize && pool.problems.empty();
  pool.target = may_resize
                    ? Target(family, pool.spec, observed.status)
                    : static_cast<int32_t>(
                          HoldingOf(observed.stateful_set.get(), {}).told);
  pool.surge = may_resize ? SurgeOf(pool) : 0;
  return pool;
}

void Grant(const std::optional<uint32_t>& budget,
           std::vector<PoolState>& pools) {
  std::vector<Holding> holdings;
  for (const PoolState& pool : pools)
    holdings.push_back(
        HoldingOf(pool.observed->stateful_set.get(), pool.observed->pods));
  GrantWithin(budget, holdings, pools);
}

// Loans of one role are borrowed by the first pool that has it.
void CountBorrowed(std::vector<PoolState>& pools) {
  for (const bool is_prefill : {true, false}) {
    uint32_t lent = 0;
    for (const PoolState& pool : pools) {
      const Json& status = pool.observed->status;
      if (pool.spec.is_prefill == is_prefill || !status.is_object()) continue;
      const auto loans = status.find("lent");
      if (loans != status.end() && loans->is_array()) lent += loans->size();
    }
    const auto borrower =
        std::ranges::find_if(pools, [is_prefill](const PoolState& pool) {
          return pool.spec.is_prefill == is_prefill;
        });
    if (borrower != pools.end()) borrower->borrowed = lent;
  }
}

}  // namespace

std::string UpdateRevision(const WorkerPoolObserved& pool) {
  if (pool.stateful_set == nullptr) return "";
  const WorkloadFigures& figures = *pool.stateful_set->figures;
  return figures.observed_generation >= figures.generation
             ? figures.update_revision
             : "";
}

uint32_t ReplicasHeld(const WorkerPoolObserved& pool) {
  const Holding holding = HoldingOf(pool.stateful_set.get(), pool.pods);
  return holding.told + holding.leaving;
}

FamilyState ReadFamily(const FamilyObserved& observed,
                       const ControllerSettings& settings) {
  FamilyState family{.observed = &observed};
  family.spec =
      ReadKVCachePool(observed.key.name, observed.spec, family.problems);
  const std::string pinned = kube::TextAt(observed.status, "version");
  family.version = !family.spec.version.empty() ? family.spec.version
                   : !pinned.empty()            ? pinned
                                                : settings.version;
  family.image = family.spec.image;
  if (family.image.repository.empty())
    family.image.repository = settings.image_repository;
  family.model.phase = ModelState::Phase::kPending;
  const bool may_resize = !IsBudgetUnreadable(family.problems);
  for (const WorkerPoolObserved& pool : observed.pools)
    family.pools.push_back(ReadPool(family.spec, pool, may_resize));
  Grant(family.spec.rebalancing.accelerator_budget, family.pools);
  CountBorrowed(family.pools);
  return family;
}

}  // namespace tidepool::reconcilers
