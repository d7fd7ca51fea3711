#include "controller/reconcilers/holding.h"

#include <algorithm>

#include "dataplane/scheduling/planner.h"

namespace tidepool::reconcilers {

Holding HoldingOf(const Child* set,
                  std::span<const std::shared_ptr<const PodView>> pods) {
  Holding holding;
  if (set != nullptr)
    holding.told = static_cast<uint32_t>(std::max(set->figures->wanted, 0));
  const uint32_t each = set == nullptr ? 0 : set->figures->devices;
  holding.each = each;
  holding.devices = uint64_t{holding.told} * each;
  for (const auto& pod : pods) {
    if (pod->finished) continue;
    const int ordinal = OrdinalOf(pod->key.name);
    if (ordinal >= 0 && static_cast<uint32_t>(ordinal) < holding.told) {
      // Another takes its place sooner or later.
      holding.devices += pod->devices > each ? pod->devices - each : 0;
    } else {
      ++holding.leaving;
      holding.devices += pod->devices;
    }
  }
  return holding;
}

bool WantsLargerPods(const PoolState& pool, uint32_t each) {
  return pool.problems.empty() && each > 0 &&
         each < pool.spec.resources.Devices();
}

void GrantWithin(const std::optional<uint32_t>& budget,
                 std::span<const Holding> holdings,
                 std::vector<PoolState>& pools) {
  std::vector<scheduling::ReplicaGrant> wanted;
  uint64_t held = 0, told = 0;
  for (size_t i = 0; i < pools.size(); ++i) {
    const PoolState& pool = pools[i];
    const uint32_t devices = pool.spec.resources.Devices();
    told += uint64_t{holdings[i].told} * devices;
    held +=
        std::max(holdings[i].devices,
                 (uint64_t{holdings[i].told} + holdings[i].leaving) * devices);
    wanted.push_back(
        {.pool = pool.observed->name(),
         .planned = static_cast<uint32_t>(pool.target + pool.surge),
         .observed = holdings[i].told,
         .devices_per_replica = devices});
  }
  // Granting counts those that were told itself.
  std::optional<uint32_t> left = budget;
  if (left.has_value())
    *left -= static_cast<uint32_t>(std::min<uint64_t>(*left, held - told));
  const std::vector<uint32_t> granted = scheduling::GrantReplicas(wanted, left);
  for (size_t i = 0; i < pools.size(); ++i) {
    pools[i].granted = static_cast<int32_t>(granted[i]);
    pools[i].waits_for_room = WantsLargerPods(pools[i], holdings[i].each) &&
                              held > budget.value_or(held);
  }
}

}  // namespace tidepool::reconcilers
