// Growing within a budget. What watches have told may be old, and a leader that
// was frozen may still send what it decided long ago: neither may lead to a
// device too many.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/kube/client.h"
#include "controller/reconcilers/family.h"
#include "controller/reconcilers/family_memory.h"
#include "dataplane/base/clock.h"

namespace tidepool::reconcilers {

// Thread-safe for different families.
class GrowthGate {
 public:
  // Both outlive it. `term`: of the leader; nullopt when not leading.
  GrowthGate(kube::Client& client, const Clock& clock,
             std::function<std::optional<uint64_t>()> term)
      : client_(client), clock_(clock), term_(std::move(term)) {}

  // Lowers the grants of pools that are to grow, or to have larger pods, to
  // what there is room for, seen with the API server's own eyes. Asks nobody if
  // nothing is to grow or no budget is stated.
  //
  // Marks the StatefulSets of the family with the leader's term first. All
  // writes to them have the version that was seen as a precondition, so that
  // what an earlier leader decided before is refused from then on.
  // Errors: those of the client; nothing is granted to grow then.
  Status Admit(FamilyState& family, FamilyMemory& memory) const;

 private:
  // What there is of one pool.
  struct Workers {
    std::shared_ptr<const Child> set;  // may be null
    std::vector<std::shared_ptr<const PodView>> pods;
  };
  using WorkersByPool = std::map<std::string, Workers>;

  Status Grant(FamilyState& family, uint64_t term, FamilyMemory& memory) const;
  // Marks all StatefulSets of the family.
  StatusOr<WorkersByPool> Look(const kube::ObjectKey& family, uint64_t term,
                               FamilyMemory& memory) const;
  StatusOr<std::shared_ptr<const Child>> Mark(Json set, uint64_t term,
                                              FamilyMemory& memory) const;

  kube::Client& client_;
  const Clock& clock_;
  const std::function<std::optional<uint64_t>()> term_;
};

}  // namespace tidepool::reconcilers
