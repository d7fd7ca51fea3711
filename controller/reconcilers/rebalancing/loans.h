// status.lent: which workers have, or are to have, the other role. It is
// written before a worker is asked, so that whoever comes next can tell what
// was meant; what workers say of themselves tells what became of it. Pure.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controller/reconcilers/family.h"
#include "controller/reconcilers/rebalancing/fleet.h"

namespace tidepool::reconcilers {

struct Loan {
  enum class Phase { kSwitching, kLent, kReturning };

  std::string pod, uid;
  WorkerRole role = WorkerRole::kDecode;  // that it is to have
  std::string since;
  Phase phase = Phase::kSwitching;

  friend bool operator==(const Loan&, const Loan&) = default;
};

// Entries that are none are left out.
std::vector<Loan> ReadLoans(const Json& status);
Json ToJson(const std::vector<Loan>& loans);

// "prefill", as labels and flags have it.
std::string_view LabelOf(WorkerRole role);
WorkerRole RoleOf(const PoolState& pool);
// "Prefill", as the API has it.
std::string_view ApiNameOf(WorkerRole role);

// Workers by the names of their pods: of all conductors' word the newest of
// those that reach the worker. Reports older than `age_max` do not count.
std::map<std::string, WorkerSeen> MergeWorkers(const FleetSnapshot& fleet,
                                               TimePoint now, Duration age_max);

// What remains to be done for the workers of one pool to be what they are to
// be.
struct LoanStep {
  std::vector<Loan> loans;  // as status ought to have them
  struct Wish {
    const PodView* pod = nullptr;
    uint64_t incarnation = 0;
    WorkerRole role = WorkerRole::kDecode;
  };
  // SetRole. None takes the last ready worker from a role, unless all return.
  std::vector<Wish> asks;
  std::vector<Wish> labels;  // of the role it has, the pod's label being other
};

// `all_return`: nothing is lent any more (rebalancing is off).
LoanStep SettleLoans(const PoolState& pool,
                     const std::map<std::string, WorkerSeen>& workers,
                     bool all_return);

}  // namespace tidepool::reconcilers
