#include "controller/reconcilers/worker_pool/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/names.h"
#include "controller/reconcilers/worker_pool/manifests.h"

namespace tidepool::reconcilers {
namespace {

constexpr size_t kSummaryBytesMax = 200;
constexpr size_t kPodsNamedMax = 3;

// What stands in the way of making the pool's objects; empty reason: nothing.
struct Obstacle {
  std::string reason, message;
  bool is_transient = false;  // waiting, not broken
};

std::string Selector(const FamilyState& family, const std::string& pool) {
  const FamilyScope scope{.pool = family.observed->key.name};
  std::vector<std::string> terms;
  const Json selector = WorkerSelector(scope, pool);
  for (const auto& [key, value] : selector.items())
    terms.push_back(fmt::format("{}={}", key, value.get<std::string>()));
  return fmt::format("{}", fmt::join(terms, ","));
}

Obstacle FindObstacle(const FamilyState& family, const PoolState& pool) {
  if (!pool.problems.empty())
    return {"InvalidSpec", fmt::format("{}", fmt::join(pool.problems, "; "))};
  const std::string& name = family.observed->key.name;
  if (!family.exists())
    return {"KVCachePoolNotFound",
            fmt::format("KVCachePool {} is not there", name)};
  const auto& set = pool.observed->stateful_set;
  if (set != nullptr && set->owner_uid != pool.observed->resource->uid)
    return {"NameTaken", fmt::format("StatefulSet {} belongs to another object",
                                     pool.observed->name())};
  if (!family.problems.empty())
    return {"KVCachePoolInvalid",
            fmt::format("KVCachePool {}: {}", name, family.problems.front())};
  switch (family.model.phase) {
    case ModelState::Phase::kReady:
      return {};
    case ModelState::Phase::kPending:
      return {"ResolvingModel", "the model's revision is being resolved", true};
    case ModelState::Phase::kFailed:
      return {"ModelNotResolved", family.model.message};
  }
  return {};
}

// "" if the model's size is known, or does not matter.
std::string WhySizeIsUnknown(const FamilyState& family) {
  using Source = ModelSpec::Source;
  if (family.spec.engine.is_emulated || family.model.figures.has_value())
    return "";
  const Source source = family.spec.model.source;
  return fmt::format(
      "{}: spec.resources.limits.memory states what workers take, and "
      "spec.kvCacheMemory how much of it KV may take",
      source == Source::kClaim   ? "the size of a model on a volume is unknown"
      : source == Source::kImage ? "the size of a model in the image is unknown"
      : family.spec.model.token_secret.empty()
          ? "the hub does not tell the model's size without "
            "spec.model.tokenSecretRef"
          : "the hub does not tell the model's size");
}

MemoryInputs MemoryInputsOf(const FamilyState& family, const PoolState& pool) {
  return {.model = family.spec.engine.is_emulated ? std::nullopt
                                                  : family.model.figures,
          .why_unknown = WhySizeIsUnknown(family),
          .max_num_seqs = static_cast<uint64_t>(pool.spec.max_num_seqs),
          .max_model_len = pool.spec.max_model_len,
          .kv_bytes = pool.spec.kv_cache_bytes,
          .limit_bytes = pool.spec.resources.Amount("memory"),
          .cache_bytes_max = family.spec.model.cache_bytes_max};
}

WorkerContext ContextOf(const FamilyState& family, const PoolState& pool,
                        const MemoryPlan& memory) {
  const CustomResource& resource = *pool.observed->resource;
  return {.scope = {.space = resource.key.space,
                    .pool = family.observed->key.name,
                    .version = family.version,
                    .owner = {.type = pool.spec.is_prefill ? &kube::kPrefillPool
                                                           : &kube::kDecodePool,
                              .name = resource.key.name,
                              .uid = resource.uid}},
          .pool = resource.key.name,
          .model = ModelArgument(family.spec.model, family.model.commit),
          .image = family.image,
          .memory = memory,
          .family = &family.spec};
}

// The StatefulSet as it is, with another number of replicas.
void ScaleOnly(const PoolState& pool, Plan& plan) {
  const auto& set = pool.observed->stateful_set;
  if (set == nullptr || set->figures->wanted == pool.granted) return;
  plan.patches.push_back({.type = &kube::kStatefulSet,
                          .key = set->key,
                          .patch = {{"spec", {{"replicas", pool.granted}}}}});
}

// Makes the objects; returns whether a new template is held back.
bool PlanObjects(const FamilyState& family, const PoolState& pool,
                 const MemoryPlan& memory, Plan& plan) {
  const WorkerContext context = ContextOf(family, pool, memory);
  plan.manifests.push_back(WorkerService(context));
  Manifest budget =
      DisruptionBudget(context.scope, context.pool, "worker",
                       WorkerSelector(context.scope, context.pool));
  plan.manifests.push_back(std::move(budget));
  Manifest set = WorkerStatefulSet(pool.spec, context, pool.granted);
  const auto& current = pool.observed->stateful_set;
  const bool is_held = (pool.spec.rollout.is_paused || pool.waits_for_room) &&
                       current != nullptr &&
                       current->figures->template_digest != TemplateDigest(set);
  if (is_held) {
    ScaleOnly(pool, plan);
    return true;
  }
  const bool is_applied =
      current != nullptr &&
      current->figures->template_digest == TemplateDigest(set);
  plan.manifests.push_back(std::move(set));
  // Until the StatefulSet is seen with this template, its revision is not the
  // one that pods are to have.
  if (!is_applied) return false;
  for (const auto& pod : PodsToReplace({.rollout = pool.spec.rollout,
                         .target = std::min(pool.target, pool.granted),
                         .replicas = current->figures->wanted,
                         .update_revision = UpdateRevision(*pool.observed),
                         .pods = pool.observed->pods})) {
    plan.removals.push_back(
        {.type = &kube::kPod, .key = pod->key, .uid = pod->uid});
    plan.events.push_back(
        {false, "ReplacingPod",
         fmt::format("pod {} is drained and replaced", pod->key.name)});
  }
  return false;
}

struct Troubles {
  PodTrouble first = PodTrouble::kNone;
  // "pod-1 Unschedulable: no node has room; pod-2 Crashing; 3 more"
  std::string text;
};

Troubles TroublesOf(const PoolState& pool) {
  Troubles troubles;
  std::vector<std::string> named;
  size_t more = 0;
  for (const auto& pod : pool.observed->pods) {
    if (pod->trouble == PodTrouble::kNone || pod->terminating) continue;
    if (named.size() == kPodsNamedMax) {
      ++more;
      continue;
    }
    if (named.empty()) {
      troubles.first = pod->trouble;
      named.push_back(DescribeTrouble(*pod));
    } else {
      named.push_back(
          fmt::format("{} {}", pod->key.name, NameOf(pod->trouble)));
    }
  }
  if (more > 0) named.push_back(fmt::format("{} more", more));
  troubles.text = fmt::format("{}", fmt::join(named, "; "));
  return troubles;
}

Condition Degraded(const Obstacle& obstacle, const Troubles& troubles) {
  if (!obstacle.reason.empty() && !obstacle.is_transient)
    return {"Degraded", true, obstacle.reason, obstacle.message};
  if (!troubles.text.empty())
    return {"Degraded", true, "PodsFailing", troubles.text};
  return {"Degraded", false, "AsExpected", ""};
}

Condition Ready(const PoolState& pool, const Obstacle& obstacle,
                const Troubles& troubles) {
  const PodCounts& counts = pool.counts;
  // One that cannot be made aims at what there is.
  if (pool.target == 0 && !obstacle.reason.empty())
    return {"Ready", false, obstacle.reason, obstacle.message};
  if (pool.target == 0)
    return {"Ready", true, "ScaledToZero", "no replica is wanted"};
  const std::string figures =
      fmt::format("{} of {} ready", counts.ready, pool.target);
  if (counts.ready >= pool.target) return {"Ready", true, "AllReady", figures};
  if (troubles.text.empty()) return {"Ready", false, "NotReady", figures};
  return {"Ready", false, std::string(NameOf(troubles.first)),
          fmt::format("{}: {}", figures, troubles.text)};
}

Condition Progressing(const PoolState& pool, const Obstacle& obstacle,
                      bool is_held, const std::string& arithmetic) {
  const PodCounts& counts = pool.counts;
  if (obstacle.is_transient)
    return {"Progressing", true, obstacle.reason, obstacle.message};
  if (!obstacle.reason.empty())
    return {"Progressing", false, "Held", obstacle.message};
  if (pool.spec.rollout.is_paused && (is_held || counts.outdated > 0))
    return {"Progressing", false, "Paused",
            fmt::format("{} of {} pods are of the newest template",
                        is_held ? 0 : counts.updated, counts.running)};
  if (counts.outdated > 0)
    return {
        "Progressing", true, "RollingOut",
        fmt::format("{} of {} pods replaced", counts.updated, counts.running)};
  if (pool.waits_for_room)
    return {"Progressing", true, "WaitingForBudget",
            fmt::format("pods of {} devices do not fit the accelerator budget "
                        "now",
                        pool.spec.resources.Devices())};
  if (pool.granted < pool.target + pool.surge)
    return {"Progressing", true, "WaitingForBudget",
            fmt::format("{} of {} replicas fit the accelerator budget now",
                        pool.granted, pool.target + pool.surge)};
  if (counts.total != pool.target)
    return {"Progressing", true, "Scaling",
            fmt::format("{} pods, {} wanted", counts.total, pool.target)};
  return {"Progressing", false, "UpToDate",
          arithmetic.empty() ? "" : "memory: " + arithmetic};
}

uint32_t LentCount(const PoolState& pool) {
  const Json& status = pool.observed->status;
  const Json lent = status.is_object() ? status.value("lent", Json()) : Json();
  return lent.is_array() ? static_cast<uint32_t>(lent.size()) : 0;
}

Json Summary(const PoolState& pool, const Plan& plan) {
  const uint32_t lent = LentCount(pool);
  std::vector<std::string> loans;
  if (lent > 0) loans.push_back(fmt::format("{} lent", lent));
  if (pool.borrowed > 0)
    loans.push_back(fmt::format("{} borrowed", pool.borrowed));
  std::string message;
  for (const Condition& condition : plan.conditions)
    if (condition.type == "Ready" ? !condition.is_true : condition.is_true)
      message = fmt::format("{}: {}", condition.reason, condition.message);
  return {{"ready", fmt::format("{}/{}", pool.counts.ready, pool.target)},
          {"loans", loans.empty() ? std::string("-")
                                  : fmt::format("{}", fmt::join(loans, ", "))},
          {"message", Shortened(std::move(message), kSummaryBytesMax)}};
}

void AddStatus(const FamilyState& family, const PoolState& pool, Plan& plan) {
  plan.status["observedGeneration"] = pool.observed->resource->generation;
  plan.status["replicas"] = pool.counts.running;
  plan.status["readyReplicas"] = pool.counts.ready;
  plan.status["updatedReplicas"] = pool.counts.updated;
  plan.status["selector"] = Selector(family, pool.observed->name());
  plan.status["borrowed"] = pool.borrowed;
  plan.status["summary"] = Summary(pool, plan);
  if (family.is_valid() &&
      family.spec.rebalancing.policy == scheduling::RebalancingPolicy::kOff) {
    plan.status["plannedReplicas"] = nullptr;
    plan.status["plannedFromReplicas"] = nullptr;
  }
}

}  // namespace

Plan MakeWorkerPoolPlan(const FamilyState& family, const PoolState& pool) {
  Plan plan;
  Obstacle obstacle = FindObstacle(family, pool);
  bool is_held = false;
  std::string arithmetic;
  if (obstacle.reason.empty()) {
    const StatusOr<MemoryPlan> memory =
        PlanMemory(MemoryInputsOf(family, pool));
    if (memory.ok()) {
      is_held = PlanObjects(family, pool, *memory, plan);
      arithmetic = memory->arithmetic;
    } else {
      const bool fits = memory.status().code() != Code::kResourceExhausted;
      obstacle = {fits ? "InvalidSpec" : "ModelDoesNotFit",
                  std::string(MessageOf(memory.status()))};
    }
  }
  // Scaling goes on where only the template is in doubt.
  const bool may_scale = pool.problems.empty() && family.exists() &&
                         obstacle.reason != "NameTaken";
  if (!obstacle.reason.empty() && may_scale) ScaleOnly(pool, plan);
  // In the order in which the summary looks for the most telling one.
  const Troubles troubles = TroublesOf(pool);
  plan.conditions = {Ready(pool, obstacle, troubles),
                     Progressing(pool, obstacle, is_held, arithmetic),
                     Degraded(obstacle, troubles)};
  AddStatus(family, pool, plan);
  return plan;
}

}  // namespace tidepool::reconcilers
