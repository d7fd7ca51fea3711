// The planner's picture of a family. Pure.
#pragma once

#include <map>
#include <string>

#include "controller/reconcilers/family.h"
#include "controller/reconcilers/kv_cache_pool/plan.h"
#include "controller/reconcilers/rebalancing/fleet.h"

namespace tidepool::reconcilers {

// `workers` as merged from `fleet`; reports older than `age_max` do not count.
scheduling::FleetView MakeView(const FamilyState& family,
                               const FleetSnapshot& fleet,
                               const std::map<std::string, WorkerSeen>& workers,
                               TimePoint now, Duration age_max);

// What status shows; nullopt if no conductor spoke within `age_max`.
std::optional<FleetFigures> FiguresOf(const FamilyState& family,
                                      const FleetSnapshot& fleet, TimePoint now,
                                      Duration age_max);

}  // namespace tidepool::reconcilers
