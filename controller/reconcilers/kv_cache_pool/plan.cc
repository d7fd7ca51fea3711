#include "controller/reconcilers/kv_cache_pool/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "controller/kube/json_fields.h"
#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "controller/reconcilers/kv_cache_pool/manifests.h"
#include "controller/reconcilers/names.h"

namespace tidepool::reconcilers {
namespace {

using kube::At;
using kube::IntegerAt;
using kube::TextAt;

constexpr size_t kMoveBytesMax = 200;

struct RoleCounts {
  int32_t pools = 0, desired = 0, ready = 0, lent = 0;
};

RoleCounts CountRole(const FamilyState& family, bool is_prefill) {
  RoleCounts counts;
  for (const PoolState& pool : family.pools) {
    if (pool.spec.is_prefill != is_prefill) continue;
    ++counts.pools;
    counts.desired += pool.target;
    counts.ready += pool.counts.ready;
    const Json& lent = At(pool.observed->status, "lent");
    if (lent.is_array()) counts.lent += static_cast<int32_t>(lent.size());
  }
  return counts;
}

FamilyScope ScopeOf(const FamilyState& family) {
  const CustomResource& resource = *family.observed->resource;
  return {.space = resource.key.space,
          .pool = resource.key.name,
          .version = family.version,
          .owner = {.type = &kube::kKVCachePool,
                    .name = resource.key.name,
                    .uid = resource.uid}};
}

ConductorContext ContextOf(const FamilyState& family,
                           const ControllerSettings& settings) {
  ConductorContext context{
      .scope = ScopeOf(family),
      .model = ModelArgument(family.spec.model, family.model.commit),
      .image = family.image,
      .controller_space = settings.space,
  };
  for (const PoolState& pool : family.pools)
    if (!pool.observed->resource->deleting)
      context.worker_pools.push_back(pool.observed->name());
  std::ranges::sort(context.worker_pools);
  return context;
}

// Objects of ours that the spec does not ask for any more.
void RemoveOthers(const FamilyState& family, Plan& plan) {
  for (const auto& [type, child] : family.observed->children) {
    if (child->owner_uid != family.observed->resource->uid || child->deleting)
      continue;
    const bool is_optional = *type == kube::kNetworkPolicy ||
                             *type == kube::kIngress ||
                             *type == kube::kHttpRoute;
    const bool is_wanted = std::ranges::any_of(
        plan.manifests, [&, t = type, c = child](const Manifest& manifest) {
          return *manifest.type == *t && manifest.key == c->key;
        });
    if (is_optional && !is_wanted)
      plan.removals.push_back(
          {.type = type, .key = child->key, .uid = child->uid});
  }
}

void PlanObjects(const FamilyState& family, const ControllerSettings& settings,
                 Plan& plan) {
  const ConductorContext context = ContextOf(family, settings);
  const FamilyScope& scope = context.scope;
  const std::string name = ConductorName(scope.pool);
  for (Manifest& account : ServiceAccounts(scope))
    plan.manifests.push_back(std::move(account));
  plan.manifests.push_back(ConductorService(family.spec, scope));
  for (Manifest& policy : NetworkPolicies(family.spec, context))
    plan.manifests.push_back(std::move(policy));
  plan.manifests.push_back(
      DisruptionBudget(scope, name, "conductor", scope.Selector("conductor")));
  for (Manifest& route : Routes(family.spec, scope))
    plan.manifests.push_back(std::move(route));
  RemoveOthers(family, plan);
  // A conductor without anybody to decode would only be restarted once there
  // is; and without its model's commit it might serve another one.
  const bool has_decode = CountRole(family, false).pools > 0;
  const bool exists = family.observed->deployment != nullptr;
  if (family.model.phase == ModelState::Phase::kReady &&
      (has_decode || exists) && !context.worker_pools.empty())
    plan.manifests.push_back(ConductorDeployment(family.spec, context));
}

Condition Ready(const FamilyState& family, const RoleCounts& decode) {
  const auto& deployment = family.observed->deployment;
  const int32_t conductors =
      deployment == nullptr ? 0 : deployment->figures->available;
  if (decode.pools == 0)
    return {
        "Ready", false, "NoDecodePool",
        fmt::format("no DecodePool refers to {}", family.observed->key.name)};
  if (conductors == 0)
    return {"Ready", false, "NoReadyConductor",
            fmt::format("0 of {} conductors available",
                        family.spec.conductor.replicas)};
  if (decode.ready == 0)
    return {"Ready", false, "NoReadyDecodeWorker",
            fmt::format("0 of {} decode workers ready", decode.desired)};
  return {"Ready", true, "Serving",
          fmt::format("{} conductors available, {} decode workers ready",
                      conductors, decode.ready)};
}

Condition Progressing(const FamilyState& family) {
  if (!family.problems.empty())
    return {"Progressing", false, "Held", "the spec is invalid"};
  if (family.model.phase == ModelState::Phase::kPending)
    return {"Progressing", true, "ResolvingModel",
            "the model's revision is being resolved"};
  const auto& deployment = family.observed->deployment;
  if (deployment == nullptr)
    return {"Progressing", true, "Waiting", "there are no conductors yet"};
  const WorkloadFigures& figures = *deployment->figures;
  const int32_t wanted = family.spec.conductor.replicas;
  if (figures.observed_generation < figures.generation ||
      figures.updated < wanted || figures.replicas > wanted ||
      figures.available < wanted)
    return {"Progressing", true, "RollingOut",
            fmt::format("{} of {} conductors updated, {} available",
                        figures.updated, wanted, figures.available)};
  return {"Progressing", false, "UpToDate", ""};
}

Condition Degraded(const FamilyState& family) {
  if (!family.problems.empty())
    return {"Degraded", true, "InvalidSpec",
            fmt::format("{}", fmt::join(family.problems, "; "))};
  if (family.model.phase == ModelState::Phase::kFailed)
    return {"Degraded", true, "ModelNotResolved", family.model.message};
  const auto& deployment = family.observed->deployment;
  if (deployment != nullptr &&
      deployment->owner_uid != family.observed->resource->uid)
    return {"Degraded", true, "NameTaken",
            fmt::format("Deployment {} belongs to another object",
                        deployment->key.name)};
  for (const auto& pod : family.observed->conductors)
    if (pod->trouble != PodTrouble::kNone && !pod->terminating)
      return {"Degraded", true, "PodsFailing", DescribeTrouble(*pod)};
  for (const PoolState& pool : family.pools)
    if (!pool.problems.empty())
      return {
          "Degraded", true, "InvalidPool",
          fmt::format("{}: {}", pool.observed->name(), pool.problems.front())};
  return {"Degraded", false, "AsExpected", ""};
}

// True if a figure is another by more than a tenth: less is noise.
bool Moved(const Json& before, const FleetFigures& now) {
  const auto moved = [&](const char* name, std::optional<int64_t> value) {
    const auto old = static_cast<double>(IntegerAt(before, name, -1));
    if (!value.has_value() || old < 0) return value.has_value() != (old >= 0);
    const auto fresh = static_cast<double>(*value);
    return std::abs(fresh - old) > 0.1 * std::max(fresh, old) &&
           std::abs(fresh - old) >= 1;
  };
  return moved("ttftMilliseconds", now.ttft_ms) ||
         moved("tbtMilliseconds", now.tbt_ms) ||
         moved("hitRatePercent", now.hit_rate_percent) ||
         moved("saturationPercent", now.saturation_percent);
}

// What status.observed ought to say: what it says, unless that is old and
// wrong.
Json Observed(const Json& status, const KVCachePoolInputs& inputs) {
  const Json& before = At(status, "observed");
  if (!inputs.figures.has_value()) return before;
  if (before.is_object()) {
    const StatusOr<double> since = kube::ParseTime(TextAt(before, "at"));
    if (since.ok() && inputs.unix_seconds - *since < kFiguresIntervalSeconds)
      return before;
    if (!Moved(before, *inputs.figures)) return before;
  }
  Json observed = {{"at", kube::FormatTime(inputs.unix_seconds)}};
  const auto add = [&](const char* name, std::optional<int64_t> value) {
    if (value.has_value()) observed[name] = *value;
  };
  add("ttftMilliseconds", inputs.figures->ttft_ms);
  add("tbtMilliseconds", inputs.figures->tbt_ms);
  add("hitRatePercent", inputs.figures->hit_rate_percent);
  add("saturationPercent", inputs.figures->saturation_percent);
  return observed;
}

// "812/2000", "812", or absent.
void AddAgainst(const Json& observed, const char* name,
                std::optional<int64_t> slo, const char* column, Json& summary) {
  const int64_t value = IntegerAt(observed, name, -1);
  if (value < 0) return;
  summary[column] = slo.has_value() ? fmt::format("{}/{}", value, *slo)
                                    : fmt::format("{}", value);
}

Json Summary(const FamilyState& family, const RoleCounts& prefill,
             const RoleCounts& decode, const Json& observed,
             const Json& moves) {
  Json summary = {
      {"prefill", prefill.pools == 0
                      ? std::string("-")
                      : fmt::format("{}/{}", prefill.ready, prefill.desired)},
      {"decode", decode.pools == 0
                     ? std::string("-")
                     : fmt::format("{}/{}", decode.ready, decode.desired)}};
  AddAgainst(observed, "ttftMilliseconds", family.spec.slo.ttft_ms, "ttft",
             summary);
  AddAgainst(observed, "tbtMilliseconds", family.spec.slo.tbt_ms, "tbt",
             summary);
  if (const int64_t rate = IntegerAt(observed, "hitRatePercent", -1); rate >= 0)
    summary["hitRate"] = fmt::format("{}%", rate);
  if (moves.is_array() && !moves.empty() && moves[0].is_object()) {
    const auto text = [&](const char* name) { return TextAt(moves[0], name); };
    summary["lastMove"] =
        Shortened(fmt::format("{} {}->{}: {}", text("pool"), text("from"),
                              text("to"), text("reason")),
                  kMoveBytesMax);
  }
  return summary;
}

void AddStatus(const FamilyState& family, const KVCachePoolInputs& inputs,
               const RoleCounts& prefill, const RoleCounts& decode,
               Plan& plan) {
  const FamilyObserved& observed = *family.observed;
  Json& status = plan.status;
  status["observedGeneration"] = observed.resource->generation;
  status["version"] = family.version;
  if (!family.model.commit.empty()) {
    status["modelRevision"] = family.model.commit;
    status["resolvedModel"] = family.spec.model.ResolutionKey();
  } else if (family.model.phase == ModelState::Phase::kReady) {
    status["modelRevision"] = nullptr;
    status["resolvedModel"] = nullptr;
  }
  status["conductors"] = {{"desired", family.spec.conductor.replicas},
                          {"ready", observed.deployment == nullptr
                                        ? 0
                                        : observed.deployment->figures->ready}};
  const auto role = [](const RoleCounts& counts) {
    return Json{{"desired", counts.desired},
                {"ready", counts.ready},
                {"lent", counts.lent}};
  };
  status["prefill"] = role(prefill);
  status["decode"] = role(decode);
  if (Json figures = Observed(observed.status, inputs); !figures.is_null())
    status["observed"] = std::move(figures);
  status["endpoint"] =
      fmt::format("http://{}.{}.svc:{}", ConductorName(observed.key.name),
                  observed.key.space, family.spec.conductor.service_port);
  const ConductorSpec& conductor = family.spec.conductor;
  status["apiKeySecretName"] = !conductor.needs_api_key ? std::string()
                               : conductor.api_key_secret.empty()
                                   ? ApiKeyName(observed.key.name)
                                   : conductor.api_key_secret;
  Json moves = inputs.rebalancing.moves;
  if (!moves.is_null()) {
    status["rebalances"] = moves;
  } else {
    moves = At(observed.status, "rebalances");
  }
  status["summary"] =
      Summary(family, prefill, decode, At(status, "observed"), moves);
}

}  // namespace

bool NeedsApiKeySecret(const FamilyState& family) {
  return family.is_valid() && family.spec.conductor.needs_api_key &&
         family.spec.conductor.api_key_secret.empty();
}

Plan MakeKVCachePoolPlan(const FamilyState& family,
                         const KVCachePoolInputs& inputs) {
  Plan plan;
  const RoleCounts prefill = CountRole(family, true);
  const RoleCounts decode = CountRole(family, false);
  if (family.problems.empty()) PlanObjects(family, inputs.settings, plan);
  plan.conditions = {Ready(family, decode), Progressing(family),
                     Degraded(family), inputs.rebalancing.condition};
  AddStatus(family, inputs, prefill, decode, plan);
  return plan;
}

}  // namespace tidepool::reconcilers
