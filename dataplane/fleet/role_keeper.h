// Carries a plan's roles out: which SetRole calls to make, and when.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/fleet/fleet_view.h"
#include "dataplane/scheduling/planner.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::fleet {

// What one instance is to be, written down by whoever owns the plan, and what
// is known of it.
struct RoleWish {
  std::string id;  // PlannerInstance::id
  scheduling::WorkerRole role = scheduling::WorkerRole::kDecode;
  const WorkerReport* worker = nullptr;  // null: nobody knows it now
  // What the instance has by then is handed to others.
  Duration drain_timeout = std::chrono::seconds(30);
};

// One SetRole to make, at the worker's control service.
struct RoleCall {
  std::string id;
  std::string address;  // host:port
  worker::v1::SetRoleRequest request;
};

// Asks every instance that neither has its wished role nor is on its way to it,
// again and again until it has: one that restarts comes back in its flag's role
// and is asked anew. Level-based: a new keeper (a new leader) needs no history,
// only a greater term. At most one call to an instance is under way; after a
// failure the pause doubles from kPauseMin to kPauseMax.
//
// Deterministic; confined to one thread. Holds one entry for each wish.
class RoleKeeper {
 public:
  static constexpr Duration kPauseMin = std::chrono::seconds(1);
  static constexpr Duration kPauseMax = std::chrono::seconds(30);
  // A report that is older than an answer says nothing about it; one that
  // stays so for this long is believed all the same.
  static constexpr Duration kEchoPatience = std::chrono::seconds(10);

  // `term`, not 0, is greater than any that guarded these workers before.
  explicit RoleKeeper(uint64_t term);
  ~RoleKeeper();

  // The calls to make now. Each must be answered by OnAnswer, in the end.
  // Instances that are not among `wishes` are forgotten.
  std::vector<RoleCall> Next(std::span<const RoleWish> wishes, TimePoint now);

  // The outcome of the call to `id` that is under way.
  void OnAnswer(const std::string& id, const Status& outcome, TimePoint now);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::fleet
