// What conductors report, as the planner's picture of the world. Pure: for
// whoever runs a PlannerCore on a live fleet.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/scheduling/planner.h"
#include "tidepool/conductor/v1/fleet.pb.h"

namespace tidepool::fleet {

using conductor::v1::WatchFleetResponse;
using conductor::v1::WorkerReport;

// The newest that one conductor said, and when it came.
struct ConductorReport {
  std::string address;  // of its control port
  // Null: it has said nothing yet.
  std::shared_ptr<const WatchFleetResponse> report;
  TimePoint at{};
  // Why it is not being heard right now.
  Status status;
};

// The reports of all conductors of one fleet, taken together. Immutable.
class FleetReports {
 public:
  // Reports older than `age_max` are left out: a conductor that has gone holds
  // up nobody.
  FleetReports(std::vector<ConductorReport> reports, TimePoint now,
               Duration age_max);

  // Sets everything but pools and instances. What waits is summed; latencies
  // are the worst of any conductor, at the smallest reported quantile that is
  // no less than `percentile` (p99 above it).
  void FillStatistics(int percentile, scheduling::FleetView& view) const;

  // The worker whose control service is at `address` ("host:port"), as a
  // conductor sees it that is connected to it, or else as any does, the newest
  // report first; null if none knows it. Valid as long as this object.
  const WorkerReport* FindWorker(std::string_view address) const;

 private:
  std::vector<ConductorReport> reports_;  // fresh, newest first
  absl::flat_hash_map<std::string, const WorkerReport*> workers_;
};

// Sets what the worker says of itself: role, readiness, load. Null or not
// connected: it cannot be reached. Identity and plan (id, pool, planned_role,
// terminating) are the caller's.
void FillInstance(const WorkerReport* worker,
                  scheduling::PlannerInstance& instance);

}  // namespace tidepool::fleet
