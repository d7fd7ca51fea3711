// Carries out what the planner decides, so that a crash between any two writes
// is taken up by whoever comes next:
//   a flip: status.lent of the pool that owns the worker (only if nobody wrote
//     there meanwhile), then SetRole with the epoch of the leader's term, then
//     the label of the pod;
//   replicas: status.plannedReplicas; the StatefulSet follows as the budget
//     grants.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/reconcilers/applier.h"
#include "controller/reconcilers/family.h"
#include "controller/reconcilers/kv_cache_pool/plan.h"
#include "controller/reconcilers/rebalancing/fleet.h"

namespace tidepool::reconcilers {

// Between two looks at one family; can be lost.
struct RebalancingMemory {
  std::optional<scheduling::PlannerCore> planner;
  std::map<std::string, TimePoint> asked;  // SetRole, by pod uid
};

struct RebalancingOutcome {
  RebalancingView view;
  std::optional<FleetFigures> figures;
  std::vector<EventNote> events;
  std::optional<Duration> look_again;
  bool wrote = false;  // statuses of pools: judge the family again
  Status status;       // the first write that failed
};

// Thread-safe for different families.
class Rebalancer {
 public:
  struct Parts {
    kube::Client& client;
    Applier& applier;
    FleetSource& fleet;
    RoleSetter& roles;
    const Clock& clock;
    std::function<double()> unix_seconds;
    // Of the leader; nullopt when not leading: then nobody is asked.
    std::function<std::optional<uint64_t>()> term;
  };
  // All must outlive it.
  explicit Rebalancer(Parts parts) : parts_(std::move(parts)) {}

  // One look: statistics, loans, decision, writes. `observed` is what `family`
  // was read from; its statuses are renewed by what is written.
  RebalancingOutcome Look(FamilyState& family, FamilyObserved& observed,
                          RebalancingMemory& memory, FamilyMemory& answers);
  // The family is gone.
  void Forget(const kube::ObjectKey& family) {
    parts_.fleet.Follow(family, {}, false);
  }

 private:
  struct Context;
  void FollowConductors(const FamilyState& family);
  Status Settle(Context& context, const PoolState& pool);
  Status WritePool(Context& context, const PoolState& pool, Json patch);
  void Ask(Context& context, const PoolState& pool, const PodView& pod,
           uint64_t incarnation, WorkerRole role);
  Status Decide(Context& context);
  Status Begin(Context& context, const scheduling::Move& move);
  Status BeginFlip(Context& context, const scheduling::Move& move);
  Status BeginScale(Context& context, const scheduling::Move& move);
  void Record(Context& context, const PoolState& pool,
              const scheduling::Move& move, Json entry);

  const Parts parts_;
  std::atomic<uint64_t> sequence_ = 0;  // of role epochs within a term
};

}  // namespace tidepool::reconcilers
