// Brings families in line: gather, plan, apply. One key is one family, the
// KVCachePool with the PrefillPools and DecodePools that refer to it, since
// they share a budget, and who gives must be looked at together with who
// takes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "controller/kube/event_recorder.h"
#include "controller/reconcilers/applier.h"
#include "controller/reconcilers/cluster_cache.h"
#include "controller/reconcilers/family.h"
#include "controller/reconcilers/family_memory.h"
#include "controller/reconcilers/kv_cache_pool/plan.h"
#include "controller/reconcilers/model_catalog.h"
#include "controller/reconcilers/rebalancing/rebalancer.h"
#include "controller/reconcilers/tls/keyring.h"
#include "controller/runtime/reconciler.h"
#include "dataplane/base/mutex.h"

namespace tidepool::reconcilers {

// What FamilyReconciler uses; all must outlive it.
struct ReconcilerParts {
  kube::Client& client;
  const ClusterCache& cache;
  ModelCatalog& models;
  FleetSource& fleet;
  RoleSetter& roles;
  Keyring& keyring;
  kube::EventRecorder& events;
  const Clock& clock;
  std::function<double()> unix_seconds;
  std::function<uint64_t()> random;  // of secrets
  // Of the leader; nullopt when not leading.
  std::function<std::optional<uint64_t>()> term;
};

class FamilyReconciler final : public runtime::Reconciler {
 public:
  FamilyReconciler(ControllerSettings settings, ReconcilerParts parts);
  ~FamilyReconciler() override;

  StatusOr<runtime::Result> Reconcile(const kube::ObjectKey& key) override;

 private:
  struct Memory;

  std::shared_ptr<Memory> MemoryOf(const kube::ObjectKey& key);
  FamilyState Judge(const FamilyObserved& observed);
  // `secured`: what became of the certificates.
  Status CarryFamily(const FamilyState& family, const Status& secured,
                     RebalancingOutcome outcome, Memory& memory,
                     std::optional<Duration>& requeue);
  Status EnsureApiKey(const FamilyState& family, Memory& memory,
                      std::optional<Duration>& requeue);
  Status EnsureTls(const FamilyState& family, std::optional<Duration>& requeue);

  const ControllerSettings settings_;
  const ReconcilerParts parts_;
  Applier applier_;
  Rebalancer rebalancer_;
  Mutex mutex_;
  std::map<kube::ObjectKey, std::shared_ptr<Memory>> memories_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::reconcilers
