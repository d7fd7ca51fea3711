// What `tidepool serve --elastic` decides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/cli/elastic.h"
#include "dataplane/fleet/fleet_client.h"
#include "dataplane/fleet/fleet_view.h"
#include "dataplane/fleet/role_keeper.h"
#include "dataplane/scheduling/planner.h"

namespace tidepool::cli {

// The planner and the plan so far, which nothing else keeps here. Workers are
// lent between the two roles and never added, and one that restarts is to be
// again what it was. Deterministic; confined to one thread.
class ElasticCore {
 public:
  struct Turn {
    std::vector<fleet::RoleCall> calls;  // each to be answered by OnAnswer
    std::vector<std::string> lines;      // for people
  };

  // `term` is greater than that of any earlier start of these workers.
  ElasticCore(const ElasticConfig& config, std::vector<ElasticWorker> workers,
              uint64_t term, TimePoint now);

  Turn Decide(const std::vector<fleet::ConductorReport>& reports,
              TimePoint now);

  // Gives a line for people, "" if there is nothing to say.
  std::string OnAnswer(const fleet::FleetClient::RoleAnswer& answer,
                       TimePoint now);

 private:
  struct Worker : ElasticWorker {
    scheduling::WorkerRole planned = scheduling::WorkerRole::kDecode;
  };

  scheduling::FleetView View(const fleet::FleetReports& reports) const;
  void Carry(const scheduling::Move& move, Turn& turn);
  void NoteStatistics(const std::vector<fleet::ConductorReport>& reports,
                      bool are_fresh, TimePoint now, Turn& turn);

  const ElasticConfig config_;
  const Duration statistics_age_max_;
  scheduling::PlannerCore planner_;
  fleet::RoleKeeper keeper_;
  std::vector<scheduling::PlannerPool> pools_;
  std::vector<Worker> workers_;
  TimePoint statistics_at_;
  bool blind_ = false;
};

}  // namespace tidepool::cli
