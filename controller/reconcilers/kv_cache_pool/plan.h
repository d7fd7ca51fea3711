// What ought to be for one KVCachePool. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/reconcilers/family.h"
#include "controller/reconcilers/plan.h"

namespace tidepool::reconcilers {

// How the fleet does, as its conductors tell.
struct FleetFigures {
  std::optional<int64_t> ttft_ms, tbt_ms;  // at the SLO's percentile
  std::optional<int64_t> hit_rate_percent;
  std::optional<int64_t> saturation_percent;  // of the fuller role

  bool operator==(const FleetFigures&) const = default;
};

// What is happening to the fleet's shape.
struct RebalancingView {
  Condition condition;
  Json moves;  // the last ten, the newest first
};

struct KVCachePoolInputs {
  ControllerSettings settings;
  // Nullopt: no conductor told of itself lately.
  std::optional<FleetFigures> figures;
  RebalancingView rebalancing;
  double unix_seconds = 0;
};

// How often observed figures are written, if they moved.
inline constexpr int64_t kFiguresIntervalSeconds = 30;

// `family` must exist.
Plan MakeKVCachePoolPlan(const FamilyState& family,
                         const KVCachePoolInputs& inputs);

// Whether the API key is ours to make: the Secret is created, never written
// again and never read, so no right to read Secrets is needed.
bool NeedsApiKeySecret(const FamilyState& family);

}  // namespace tidepool::reconcilers
