#include "controller/reconcilers/holding.h"

#include <algorithm>

#include "dataplane/scheduling/planner.h"

namespace tidepool::reconcilers {

Holding HoldingOf(const Child* set,
                  std::span<const std::shared_ptr<const PodView>> pods) {
  Holding holding;
  if (set != nullptr)
    holding.told = static_cast<uint32_t>(std::max(set->figures->wanted, 0));
  for (const auto& pod : pods) {
    const int ordinal = OrdinalOf(pod->key.name);
    const bool is_told =
        ordinal >= 0 && static_cast<uint32_t>(ordinal) < holding.told;
    if (!pod->finished && !is_told) ++holding.leaving;
  }
  return holding;
}

void GrantWithin(const std::optional<uint32_t>& budget,
                 std::span<const Holding> holdings,
                 std::vector<PoolState>& pools) {
  std::vector<scheduling::ReplicaGrant> wanted;
  uint64_t leaving = 0;
  for (size_t i = 0; i < pools.size(); ++i) {
    const PoolState& pool = pools[i];
    const uint32_t devices = pool.spec.resources.Devices();
    leaving += uint64_t{holdings[i].leaving} * devices;
    wanted.push_back(
        {.pool = pool.observed->name(),
         .planned = static_cast<uint32_t>(pool.target + pool.surge),
         .observed = holdings[i].told,
         .devices_per_replica = devices});
  }
  std::optional<uint32_t> left = budget;
  if (left.has_value())
    *left -= static_cast<uint32_t>(std::min<uint64_t>(*left, leaving));
  const std::vector<uint32_t> granted = scheduling::GrantReplicas(wanted, left);
  for (size_t i = 0; i < pools.size(); ++i)
    pools[i].granted = static_cast<int32_t>(granted[i]);
}

}  // namespace tidepool::reconcilers
