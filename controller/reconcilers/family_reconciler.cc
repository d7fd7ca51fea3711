#include "controller/reconcilers/family_reconciler.h"

#include <algorithm>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/growth_gate.h"
#include "controller/reconcilers/kv_cache_pool/manifests.h"
#include "controller/reconcilers/worker_pool/plan.h"

namespace tidepool::reconcilers {
namespace {

// A Secret that was deleted is made again when conductors miss it, which they
// may for other reasons.
constexpr Duration kApiKeyRetryMin = std::chrono::seconds(30);
constexpr Duration kApiKeyRetryMax = std::chrono::minutes(10);

void KeepFirst(Status& first, const Status& next) {
  if (first.ok()) first = next;
}

void Earliest(std::optional<Duration>& requeue, Duration delay) {
  requeue = std::min(delay, requeue.value_or(delay));
}

bool IsGone(const FamilyObserved& observed) {
  return observed.resource == nullptr && observed.pools.empty();
}

// As they do when something that they mount is not there.
bool HasPodsWaiting(const FamilyObserved& observed) {
  const auto is_waiting = [](const std::shared_ptr<const Child>& workload) {
    return workload != nullptr &&
           workload->figures->ready < workload->figures->wanted;
  };
  return is_waiting(observed.deployment) ||
         std::ranges::any_of(observed.pools, is_waiting,
                             &WorkerPoolObserved::stateful_set);
}

}  // namespace

struct FamilyReconciler::Memory {
  FamilyMemory family;
  RebalancingMemory rebalancing;
  Duration api_key_wait{};  // zero: never tried
  TimePoint api_key_due;    // not before, if it is missed
};

FamilyReconciler::FamilyReconciler(ControllerSettings settings,
                                   ReconcilerParts parts)
    : settings_(std::move(settings)),
      parts_(std::move(parts)),
      applier_(parts_.client, parts_.cache, parts_.events, parts_.clock,
               parts_.unix_seconds),
      rebalancer_({.client = parts_.client,
                   .applier = applier_,
                   .fleet = parts_.fleet,
                   .roles = parts_.roles,
                   .clock = parts_.clock,
                   .unix_seconds = parts_.unix_seconds,
                   .term = parts_.term}) {}

FamilyReconciler::~FamilyReconciler() = default;

std::shared_ptr<FamilyReconciler::Memory> FamilyReconciler::MemoryOf(
    const kube::ObjectKey& key) {
  const MutexLock lock(&mutex_);
  std::shared_ptr<Memory>& memory = memories_[key];
  if (memory == nullptr) memory = std::make_shared<Memory>();
  return memory;
}

FamilyState FamilyReconciler::Judge(const FamilyObserved& observed) {
  FamilyState family = ReadFamily(observed, settings_);
  if (family.is_valid())
    family.model =
        parts_.models.Lookup(observed.key, family.spec,
                             PinnedCommit(family.spec.model, observed.status));
  return family;
}

StatusOr<runtime::Result> FamilyReconciler::Reconcile(
    const kube::ObjectKey& key) {
  FamilyObserved observed = parts_.cache.Gather(key);
  if (IsGone(observed)) {
    rebalancer_.Forget(key);
    parts_.keyring.Forget(key);
    const MutexLock lock(&mutex_);
    memories_.erase(key);
    return runtime::Result::Done();
  }
  const std::shared_ptr<Memory> memory = MemoryOf(key);
  std::optional<Duration> requeue;
  if (memory->family.Overlay(observed, parts_.clock.Now()))
    Earliest(requeue, FamilyMemory::kAnswerAgeMax);
  FamilyState family = Judge(observed);
  // Before anybody is called, and before there are pods that mount it.
  const Status secured = EnsureTls(family, requeue);
  RebalancingOutcome outcome =
      rebalancer_.Look(family, observed, memory->rebalancing, memory->family);
  if (outcome.wrote) family = Judge(observed);
  if (family.model.look_again.has_value())
    Earliest(requeue, *family.model.look_again);
  Status first = outcome.status;
  KeepFirst(first, GrowthGate(parts_.client, parts_.clock, parts_.term)
                       .Admit(family, memory->family));
  // What is written now is written on top of what was seen there.
  memory->family.Overlay(observed, parts_.clock.Now());
  KeepFirst(first,
            CarryFamily(family, secured, std::move(outcome), *memory, requeue));
  RETURN_IF_ERROR(first);
  return runtime::Result{.requeue_after = requeue};
}

Status FamilyReconciler::CarryFamily(const FamilyState& family,
                                     const Status& secured,
                                     RebalancingOutcome outcome, Memory& memory,
                                     std::optional<Duration>& requeue) {
  Status first = secured;
  const FamilyObserved& observed = *family.observed;
  if (outcome.look_again.has_value()) Earliest(requeue, *outcome.look_again);
  // Service accounts come before the pods that run as them.
  if (family.exists() && !observed.resource->deleting) {
    KeepFirst(first, EnsureApiKey(family, memory, requeue));
    Plan plan =
        MakeKVCachePoolPlan(family, {.settings = settings_,
                                     .figures = outcome.figures,
                                     .rebalancing = std::move(outcome.view),
                                     .unix_seconds = parts_.unix_seconds()});
    plan.events = std::move(outcome.events);
    plan.NoteApplied(secured);
    const PlanOwner owner{&kube::kKVCachePool, observed.resource.get(),
                          &observed.status};
    KeepFirst(first, applier_.Carry(owner, plan, memory.family));
    if (plan.requeue_after.has_value()) Earliest(requeue, *plan.requeue_after);
  }
  for (const PoolState& pool : family.pools) {
    if (pool.observed->resource->deleting) continue;
    Plan plan = MakeWorkerPoolPlan(family, pool);
    const PlanOwner owner{
        pool.spec.is_prefill ? &kube::kPrefillPool : &kube::kDecodePool,
        pool.observed->resource.get(), &pool.observed->status};
    KeepFirst(first, applier_.Carry(owner, plan, memory.family));
    if (plan.requeue_after.has_value()) Earliest(requeue, *plan.requeue_after);
  }
  return first;
}

Status FamilyReconciler::EnsureTls(const FamilyState& family,
                                   std::optional<Duration>& requeue) {
  const FamilyObserved& observed = *family.observed;
  if (!family.is_valid() || observed.resource->deleting) return OkStatus();
  if (!family.spec.uses_tls) {
    parts_.keyring.UsePlainText(observed.key);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(
      const Duration due,
      parts_.keyring.Ensure({.space = observed.key.space,
                             .pool = observed.key.name,
                             .owner = {.type = &kube::kKVCachePool,
                                       .name = observed.key.name,
                                       .uid = observed.resource->uid}},
                            HasPodsWaiting(observed)));
  Earliest(requeue, due);
  return OkStatus();
}

Status FamilyReconciler::EnsureApiKey(const FamilyState& family, Memory& memory,
                                      std::optional<Duration>& requeue) {
  if (!NeedsApiKeySecret(family)) return OkStatus();
  const TimePoint now = parts_.clock.Now();
  const auto& deployment = family.observed->deployment;
  const bool is_missed =
      deployment != nullptr &&
      deployment->figures->ready < deployment->figures->wanted;
  Duration& wait = memory.api_key_wait;
  const bool is_first = wait == Duration::zero();
  if (!is_first && !is_missed) return OkStatus();
  if (!is_first && now < memory.api_key_due) {
    Earliest(requeue, memory.api_key_due - now);
    return OkStatus();
  }
  std::string key = "tp-";
  for (int i = 0; i < 4; ++i) key += fmt::format("{:016x}", parts_.random());
  const CustomResource& resource = *family.observed->resource;
  const Manifest secret = ApiKeySecret({.space = resource.key.space,
                                        .pool = resource.key.name,
                                        .owner = {.type = &kube::kKVCachePool,
                                                  .name = resource.key.name,
                                                  .uid = resource.uid}},
                                       key);
  const Status created =
      parts_.client.Create(*secret.type, secret.key.space, secret.object)
          .status();
  if (!created.ok() && created.code() != Code::kAlreadyExists) return created;
  // One that is there may be that of a fleet that was deleted, and go yet.
  wait = is_first || created.ok() ? kApiKeyRetryMin
                                  : std::min(2 * wait, kApiKeyRetryMax);
  memory.api_key_due = now + wait;
  if (is_missed) Earliest(requeue, wait);
  return OkStatus();
}

}  // namespace tidepool::reconcilers
