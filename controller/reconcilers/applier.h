// Carries plans out.
#pragma once

#include <string>

#include "controller/kube/client.h"
#include "controller/kube/event_recorder.h"
#include "controller/reconcilers/cluster_cache.h"
#include "controller/reconcilers/family_memory.h"
#include "controller/reconcilers/plan.h"
#include "dataplane/base/clock.h"

namespace tidepool::reconcilers {

// Whose plan it is.
struct PlanOwner {
  const kube::ResourceType* type = nullptr;
  const CustomResource* resource = nullptr;
  const Json* status = nullptr;  // as observed
};

// Thread-safe for different families.
class Applier {
 public:
  // All must outlive it. `unix_seconds`: the time that people read.
  Applier(kube::Client& client, const ClusterCache& cache,
          kube::EventRecorder& events, const Clock& clock,
          std::function<double()> unix_seconds);

  // Objects, removals, then the status, which says what became of them, and
  // events. What is as it ought to be is not written. One that fails keeps no
  // other from being tried.
  // Errors: the first; kAborted for a patch of what is gone.
  Status Carry(const PlanOwner& owner, Plan& plan, FamilyMemory& memory);

  // A merge patch of the status, with the resource version seen as a
  // precondition if `only_if_unchanged`. Errors: kAborted if it changed, or is
  // gone.
  Status WriteStatus(const PlanOwner& owner, Json patch, bool only_if_unchanged,
                     FamilyMemory& memory);

 private:
  Status ApplyObjects(const PlanOwner& owner, const Plan& plan,
                      FamilyMemory& memory);
  Status ApplyOne(const PlanOwner& owner, const Manifest& manifest,
                  FamilyMemory& memory);
  Status Remove(const Removal& removal, FamilyMemory& memory);
  Status FinishStatus(const PlanOwner& owner, Plan& plan, FamilyMemory& memory);

  kube::Client& client_;
  const ClusterCache& cache_;
  kube::EventRecorder& events_;
  const Clock& clock_;
  const std::function<double()> unix_seconds_;
};

}  // namespace tidepool::reconcilers
