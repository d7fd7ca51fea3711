// What the conductor tells of its fleet, to planners and autoscalers.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/conductor/backend.h"
#include "dataplane/conductor/gateway_metrics.h"
#include "dataplane/scheduling/planner.h"
#include "tidepool/conductor/v1/fleet.pb.h"

namespace tidepool::conductor {

// Without `sequence`, which is the stream's.
v1::WatchFleetResponse MakeFleetReport(const std::string& conductor_id,
                                       uint64_t incarnation,
                                       const FleetSnapshot& fleet,
                                       const ServingReport& serving);

// How full each role is as this conductor sees it, 1 being full: the measure
// that the planner acts on (scheduling::Pressure, without SLOs), and the gauge
// tidepool_conductor_saturation_ratio. What waits here counts, and everything
// that the workers have, also from other conductors.
scheduling::PoolPressure SaturationOf(const FleetSnapshot& fleet);

}  // namespace tidepool::conductor
