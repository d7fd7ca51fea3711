// What must be so in the end.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "tests/sim/controller_scenario.h"

namespace tidepool::sim {
namespace {

using namespace std::chrono_literals;

// Longer than it takes until everything is listed again, whatever watches hid.
constexpr Duration kCalmMax = 55min;
constexpr Duration kIdle = 5min;
// What finds no node delays each growth of its pool by five minutes.
constexpr Duration kRespondMax = 60min;

}  // namespace

std::string ControllerScenario::NotConverged(
    const std::string& name, const ControllerAudit::Pool& pool) {
  const auto set = cluster_->sets().find(name);
  if (set == cluster_->sets().end()) return name + " has no StatefulSet";
  const Json& status = pool.status;
  const bool reactive = audit_->is_reactive();
  if (reactive &&
      status.value("plannedFromReplicas", int64_t{-1}) != pool.replicas())
    return fmt::format("{} has no plan from {}", name, pool.replicas());
  const int64_t target = pool.Target(reactive);
  const int64_t told = set->second["spec"]["replicas"].get<int64_t>();
  // Minima that the budget does not allow are waited for, and pods that find no
  // node may keep larger ones from being replaced.
  if (told > target ||
      (told < target && !audit_->is_starved() && !cluster_->HasUnschedulable()))
    return fmt::format("{}: {} replicas planned, {} in the StatefulSet", name,
                       target, told);
  const bool is_newest =
      DevicesOf(set->second["spec"]["template"]) == pool.devices;
  if (!is_newest && !audit_->is_starved())
    return name + " has an outdated template";
  const std::string revision = set->second["status"]["updateRevision"];
  // A pod that finds no node is the one that may be away.
  const bool may_roll_out =
      std::ranges::none_of(cluster_->pods(), [&](const auto& entry) {
        return entry.second.owner == name && entry.second.node.empty();
      });
  std::map<std::string, std::string> lent;
  for (const Json& loan : status.value("lent", Json::array())) {
    if (loan["phase"] != "Lent")
      return fmt::format("{} is {}", loan["pod"].get<std::string>(),
                         loan["phase"].get<std::string>());
    lent[loan["podUID"]] = loan["role"];
  }
  int64_t pods = 0;
  for (const auto& [pod_name, pod] : cluster_->pods()) {
    if (pod.owner != name) continue;
    ++pods;
    if (pod.terminating) return pod_name + " is terminating";
    if (pod.revision != revision && may_roll_out)
      return pod_name + " is outdated";
    const auto loan = lent.find(pod.uid);
    WorkerRole role = pod.own_role;
    if (loan != lent.end())
      role = loan->second == "Prefill" ? WorkerRole::kPrefill
                                       : WorkerRole::kDecode;
    if (loan != lent.end()) lent.erase(loan);
    if (!pod.up()) {
      if (pod.node.empty()) continue;  // no place: it waits, others do not
      return pod_name + " is not up";
    }
    const bool is_prefill = role == WorkerRole::kPrefill;
    if (pod.process->role != role || pod.process->target.has_value())
      return pod_name + " has not the role that status says";
    if (pod.role_label != (is_prefill ? "prefill" : "decode"))
      return pod_name + " has another role in its label";
  }
  if (pods != told)
    return fmt::format("{}: {} pods, {} planned", name, pods, told);
  if (!lent.empty()) return name + " has lent what is not there";
  return "";
}

// "" once everything is as it ought to be.
std::string ControllerScenario::NotConverged() {
  int leaders = 0;
  for (const Slot& slot : slots_)
    if (slot.process != nullptr && slot.process->IsLeading()) ++leaders;
  if (leaders != 1) return fmt::format("{} leaders", leaders);
  for (const auto& [name, pool] : audit_->pools())
    if (std::string what = NotConverged(name, pool); !what.empty()) return what;
  return "";
}

uint64_t ControllerScenario::Writes() const {
  uint64_t writes = writes_of_dead_;
  for (const Slot& slot : slots_)
    if (slot.process != nullptr) writes += slot.process->writes();
  return writes;
}

void ControllerScenario::CheckIdle() {
  const TimePoint calm_at = now();
  std::string what;
  uint64_t writes = Writes();
  TimePoint written_at = now();
  // Converged, and silent for a while.
  while (!failed() && now() - calm_at < kCalmMax) {
    RunUntil(now() + 1s);
    what = NotConverged();
    const uint64_t written = Writes();
    if (!what.empty() || written != writes) written_at = now();
    writes = written;
    if (now() - written_at >= kIdle) break;
  }
  result_.converged_seconds = Seconds(written_at - calm_at).count();
  if (failed()) return;
  if (!what.empty())
    return Fail(fmt::format("no convergence: {}; budget {}:{}", what, budget_,
                            audit_->Holdings()));
  if (now() - written_at < kIdle)
    Fail("something is still written although nothing happens; moves: " +
         audit_->family()["status"].value("rebalances", Json()).dump());
}

std::string ControllerScenario::LeftToDo(WorkerRole hot) const {
  const WorkerRole cold =
      hot == WorkerRole::kPrefill ? WorkerRole::kDecode : WorkerRole::kPrefill;
  int64_t planned = 0, cold_ready = 0;
  std::map<std::string, int64_t> spare;  // of a pool, above its minimum
  std::map<std::string, std::string> may_flip;
  for (const auto& [name, pool] : audit_->pools())
    planned += pool.Target(true) * pool.devices;
  for (const auto& [name, pod] : cluster_->pods()) {
    if (pod.is_conductor || !pod.up() || pod.process->role != cold) continue;
    ++cold_ready;
    may_flip[name] = pod.owner;
  }
  for (const auto& [name, pool] : audit_->pools()) {
    const WorkerRole own =
        pool.is_prefill() ? WorkerRole::kPrefill : WorkerRole::kDecode;
    if (own == hot) {
      if (pool.Target(true) < pool.spec.value("maxReplicas", int64_t{0}) &&
          planned + pool.devices <= budget_)
        return name + " may grow";
      continue;
    }
    // Those that wait for a node count, too: the planner knows no better.
    int64_t kept = 0;
    for (const auto& [pod_name, pod] : cluster_->pods())
      if (pod.owner == name && (!pod.up() || pod.process->role == own)) ++kept;
    spare[name] = kept - pool.spec.value("minReplicas", int64_t{1});
  }
  if (cold_ready <= 1) return "";
  for (const auto& [pod, owner] : may_flip) {
    const auto pool = audit_->pools().find(owner);
    const bool is_home = !spare.contains(owner);
    if (is_home || (spare[owner] > 0 &&
                    pool->second.spec.value("lending", "Allowed") == "Allowed"))
      return pod + " may change its role";
  }
  return "";
}

void ControllerScenario::CheckResponds(WorkerRole hot) {
  if (failed() || audit_->is_starved()) return;
  FleetDemand demand{.prefill = 0.05, .decode = 0.05};
  (hot == WorkerRole::kPrefill ? demand.prefill : demand.decode) = 1000;
  cluster_->set_demand(demand);
  const TimePoint end = now() + kRespondMax;
  std::string what;
  do {
    RunUntil(now() + 5s);
    what = LeftToDo(hot);
    if (what.empty()) what = NotConverged();
  } while (!failed() && !what.empty() && now() < end);
  if (!failed() && !what.empty())
    Fail(fmt::format("{} is pressed for {} minutes, and {}; budget {}:{}",
                     hot == WorkerRole::kPrefill ? "prefill" : "decode",
                     kRespondMax / 1min, what, budget_, audit_->Holdings()));
}

}  // namespace tidepool::sim
