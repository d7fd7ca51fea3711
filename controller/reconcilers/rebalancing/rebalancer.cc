#include "controller/reconcilers/rebalancing/rebalancer.h"

#include <fmt/format.h>

#include <algorithm>

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "controller/reconcilers/names.h"
#include "controller/reconcilers/rebalancing/loans.h"
#include "controller/reconcilers/rebalancing/view.h"

namespace tidepool::reconcilers {
namespace {

using scheduling::Move;
using scheduling::RebalancingPolicy;

constexpr size_t kMovesKept = 10;
constexpr size_t kMoveMessageBytesMax = 512;
// A worker that did not do as asked is asked again after this.
constexpr Duration kAskAgain = std::chrono::seconds(5);
constexpr Duration kLookMin = std::chrono::milliseconds(500);
constexpr Duration kLookMax = std::chrono::seconds(5);
// Reports of fleets that nobody rebalances come this far apart.
constexpr Duration kSampleAgeMax = std::chrono::seconds(90);

bool IsReactive(const FamilyState& family) {
  return family.spec.rebalancing.policy == RebalancingPolicy::kReactive;
}

bool HasLoans(const FamilyState& family) {
  return std::ranges::any_of(family.pools, [](const PoolState& pool) {
    return !ReadLoans(pool.observed->status).empty();
  });
}

// At most ten, the newest first.
Json WithMove(const Json& status, Json moves, Json entry) {
  Json kept = Json::array({std::move(entry)});
  if (moves.is_null() && status.is_object())
    moves = status.value("rebalances", Json());
  if (moves.is_array())
    for (Json& old : moves)
      if (kept.size() < kMovesKept) kept.push_back(std::move(old));
  return kept;
}

Condition RebalancingCondition(const FamilyState& family, bool has_statistics) {
  const auto is_moving = [](const PoolState& pool) {
    return std::ranges::any_of(
        ReadLoans(pool.observed->status),
        [](const Loan& loan) { return loan.phase != Loan::Phase::kLent; });
  };
  if (std::ranges::any_of(family.pools, is_moving))
    return {"Rebalancing", true, "FlippingRoles",
            "workers are switching roles"};
  if (!IsReactive(family)) return {"Rebalancing", false, "Off", ""};
  const auto is_scaling = [](const PoolState& pool) {
    return pool.target != pool.spec.replicas &&
           pool.counts.total != pool.target;
  };
  if (std::ranges::any_of(family.pools, is_scaling))
    return {"Rebalancing", true, "ScalingPools",
            "pools follow what was planned for them"};
  if (!has_statistics)
    return {"Rebalancing", false, "NoStatistics",
            "no conductor tells of the fleet"};
  return {"Rebalancing", false, "Balanced", ""};
}

}  // namespace

struct Rebalancer::Context {
  FamilyState& family;
  FamilyObserved& observed;
  RebalancingMemory& memory;
  FamilyMemory& answers;
  FleetSnapshot fleet;
  std::map<std::string, WorkerSeen> workers;
  TimePoint now;
  std::optional<uint64_t> term;
  RebalancingOutcome outcome;
};

RebalancingOutcome Rebalancer::Look(FamilyState& family,
                                    FamilyObserved& observed,
                                    RebalancingMemory& memory,
                                    FamilyMemory& answers) {
  FollowConductors(family);
  const scheduling::PlannerConfig config = family.spec.PlannerConfig();
  Context context{.family = family,
                  .observed = observed,
                  .memory = memory,
                  .answers = answers,
                  .fleet = parts_.fleet.Snapshot(family.observed->key),
                  .now = parts_.clock.Now(),
                  .term = parts_.term()};
  context.workers =
      MergeWorkers(context.fleet, context.now, config.statistics_age_max);
  RebalancingOutcome& outcome = context.outcome;
  outcome.figures =
      FiguresOf(family, context.fleet, context.now,
                IsReactive(family) ? config.statistics_age_max : kSampleAgeMax);
  if (family.is_valid() && context.term.has_value()) {
    for (const PoolState& pool : family.pools) {
      const Status settled = Settle(context, pool);
      if (outcome.status.ok()) outcome.status = settled;
    }
    if (IsReactive(family) && outcome.status.ok())
      outcome.status = Decide(context);
  }
  if (!IsReactive(family) && HasLoans(family)) outcome.look_again = kLookMax;
  outcome.view.condition =
      RebalancingCondition(family, outcome.figures.has_value());
  return std::move(outcome);
}

void Rebalancer::FollowConductors(const FamilyState& family) {
  std::vector<ConductorAddress> conductors;
  for (const auto& pod : family.observed->conductors)
    if (pod->ready && !pod->terminating && !pod->ip.empty())
      conductors.push_back({.uid = pod->uid, .host = pod->ip});
  parts_.fleet.Follow(family.observed->key, conductors,
                      IsReactive(family) || HasLoans(family));
}

Status Rebalancer::WritePool(Context& context, const PoolState& pool,
                             Json patch) {
  const PlanOwner owner{
      pool.spec.is_prefill ? &kube::kPrefillPool : &kube::kDecodePool,
      pool.observed->resource.get(), &pool.observed->status};
  RETURN_IF_ERROR(parts_.applier.WriteStatus(owner, std::move(patch),
                                             /*only_if_unchanged=*/true,
                                             context.answers));
  context.outcome.wrote = true;
  context.answers.Overlay(context.observed, context.now);
  return OkStatus();
}

void Rebalancer::Ask(Context& context, const PoolState& pool,
                     const PodView& pod, uint64_t incarnation,
                     WorkerRole role) {
  TimePoint& asked = context.memory.asked[pod.uid];
  if (asked != TimePoint() && context.now - asked < kAskAgain) return;
  asked = context.now;
  const bool is_bare_v6 = pod.ip.find(':') != std::string::npos;
  parts_.roles.SetRole(
      {.family = context.observed.key,
       .worker = pod.key.name,
       .address = is_bare_v6
                      ? fmt::format("[{}]:{}", pod.ip, kWorkerControlPort)
                      : fmt::format("{}:{}", pod.ip, kWorkerControlPort),
       .incarnation = incarnation,
       .role = role,
       .term = *context.term,
       .sequence = ++sequence_,
       .drain_timeout = std::chrono::seconds(pool.spec.drain_seconds)});
}

Status Rebalancer::Settle(Context& context, const PoolState& pool) {
  // Pods keep their addresses while they are written to: `asks` borrows them.
  const auto pods = pool.observed->pods;
  const LoanStep step =
      SettleLoans(pool, context.workers, !IsReactive(context.family));
  if (step.loans != ReadLoans(pool.observed->status))
    RETURN_IF_ERROR(WritePool(context, pool, {{"lent", ToJson(step.loans)}}));
  for (const LoanStep::Wish& ask : step.asks) {
    Ask(context, pool, *ask.pod, ask.incarnation, ask.role);
    // Whatever is decided next counts it as gone from its role.
    context.workers[ask.pod->key.name].target = ask.role;
  }
  for (const LoanStep::Wish& label : step.labels) {
    context.memory.asked.erase(label.pod->uid);
    const Status patched =
        parts_.client
            .Patch(kube::kPod, label.pod->key, kube::PatchType::kMerge,
                   {{"metadata",
                     {{"uid", label.pod->uid},
                      {"labels", {{kRoleLabel, LabelOf(label.role)}}}}}})
            .status();
    if (!patched.ok() && patched.code() != Code::kNotFound) return patched;
  }
  return OkStatus();
}

Status Rebalancer::Decide(Context& context) {
  const scheduling::PlannerConfig config = context.family.spec.PlannerConfig();
  if (!context.memory.planner.has_value())
    context.memory.planner.emplace(config);
  context.memory.planner->SetConfig(config);
  const scheduling::FleetView view =
      MakeView(context.family, context.fleet, context.workers, context.now,
               config.statistics_age_max);
  // Those that are gone are not asked again.
  std::erase_if(context.memory.asked, [&](const auto& entry) {
    return !std::ranges::any_of(view.instances, [&](const auto& instance) {
      return instance.id == entry.first;
    });
  });
  const scheduling::Plan plan =
      context.memory.planner->Decide(view, context.now);
  context.outcome.look_again =
      std::clamp(plan.decide_again - context.now, kLookMin, kLookMax);
  // What cannot be written down holds up what comes after it.
  for (const Move& move : plan.moves) RETURN_IF_ERROR(Begin(context, move));
  return OkStatus();
}

Status Rebalancer::Begin(Context& context, const Move& move) {
  return move.flip.has_value() ? BeginFlip(context, move)
                               : BeginScale(context, move);
}

Status Rebalancer::BeginFlip(Context& context, const Move& move) {
  for (const PoolState& pool : context.family.pools) {
    const auto pods = pool.observed->pods;
    const auto pod = std::ranges::find_if(pods, [&](const auto& candidate) {
      return candidate->uid == move.flip->instance;
    });
    if (pod == pods.end()) continue;
    const WorkerRole to = move.flip->to;
    const WorkerRole own = RoleOf(pool);
    std::vector<Loan> loans = ReadLoans(pool.observed->status);
    auto loan = std::ranges::find(loans, (*pod)->uid, &Loan::uid);
    if (to != own && loan == loans.end()) {
      loans.push_back({.pod = (*pod)->key.name, .uid = (*pod)->uid});
      loan = loans.end() - 1;
    }
    if (loan != loans.end()) {
      if (to != own) loan->role = to;
      loan->phase =
          to == own ? Loan::Phase::kReturning : Loan::Phase::kSwitching;
      loan->since = kube::FormatTime(parts_.unix_seconds());
      RETURN_IF_ERROR(WritePool(context, pool, {{"lent", ToJson(loans)}}));
    }
    context.memory.asked.erase((*pod)->uid);
    const auto worker = context.workers.find((*pod)->key.name);
    if (worker != context.workers.end())
      Ask(context, pool, **pod, worker->second.incarnation, to);
    const WorkerRole other =
        to == WorkerRole::kPrefill ? WorkerRole::kDecode : WorkerRole::kPrefill;
    Record(context, pool, move,
           {{"kind", "FlipRole"},
            {"instance", (*pod)->key.name},
            {"from", ApiNameOf(other)},
            {"to", ApiNameOf(to)}});
    return OkStatus();
  }
  return OkStatus();  // gone since: nothing to do
}

Status Rebalancer::BeginScale(Context& context, const Move& move) {
  const auto pool =
      std::ranges::find_if(context.family.pools, [&](const PoolState& each) {
        return each.observed->name() == move.scale->pool;
      });
  if (pool == context.family.pools.end()) return OkStatus();
  const int64_t before = pool->target;
  RETURN_IF_ERROR(WritePool(context, *pool,
                            {{"plannedReplicas", move.scale->to},
                             {"plannedFromReplicas", pool->spec.replicas}}));
  // A plan that begins, or begins again from a new wish, changes nothing.
  if (static_cast<int64_t>(move.scale->to) != before)
    Record(context, *pool, move,
           {{"kind", "ScalePool"},
            {"from", std::to_string(before)},
            {"to", std::to_string(move.scale->to)}});
  return OkStatus();
}

void Rebalancer::Record(Context& context, const PoolState& pool,
                        const Move& move, Json entry) {
  entry["at"] = kube::FormatTime(parts_.unix_seconds());
  entry["pool"] = pool.observed->name();
  entry["reason"] = scheduling::NameOf(move.reason);
  std::string message = move.explanation;
  // People know pods by their names.
  const std::string instance = entry.value("instance", "");
  if (move.flip.has_value() && !instance.empty())
    if (const size_t at = message.find(move.flip->instance); at != message.npos)
      message.replace(at, move.flip->instance.size(), instance);
  entry["message"] = Shortened(message, kMoveMessageBytesMax);
  context.outcome.events.push_back({false, entry["kind"], message});
  Json& moves = context.outcome.view.moves;
  moves = WithMove(context.observed.status, std::move(moves), std::move(entry));
}

}  // namespace tidepool::reconcilers
