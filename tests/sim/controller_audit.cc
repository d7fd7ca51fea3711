#include "tests/sim/controller_audit.h"

#include <fmt/format.h>

#include <algorithm>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/names.h"
#include "controller/reconcilers/observed.h"
#include "dataplane/base/check.h"
#include "tests/sim/controller_cluster.h"

namespace tidepool::sim {
namespace {

constexpr size_t kMovesMax = 10;
// A budget that was cut is seen by then.
constexpr Duration kCutUnseenFor = std::chrono::seconds(45);

using Loans = std::map<std::string, std::pair<std::string, std::string>>;

// Role and phase, by the uid of the pod.
Loans LoansOf(const Json& status) {
  Loans loans;
  if (!status.is_object()) return loans;
  for (const Json& loan : status.value("lent", Json::array()))
    loans[loan["podUID"]] = {loan["role"], loan["phase"]};
  return loans;
}

}  // namespace

struct ControllerAudit::Watched {
  const kube::ResourceType* type;
  std::unique_ptr<fakes::ApiServer::Stream> stream;
};

bool ControllerAudit::Pool::is_prefill() const {
  return *type == kube::kPrefillPool;
}

int64_t ControllerAudit::Pool::Target(bool is_planned) const {
  const bool holds =
      is_planned && status.is_object() && status.contains("plannedReplicas") &&
      status.value("plannedFromReplicas", int64_t{-1}) == replicas();
  if (!holds) return replicas();
  return std::clamp(status["plannedReplicas"].get<int64_t>(),
                    spec.value("minReplicas", std::min(replicas(), int64_t{1})),
                    spec.value("maxReplicas", int64_t{10'000}));
}

ControllerAudit::ControllerAudit(fakes::ApiServer& server,
                                 const EventQueue& queue, Report report)
    : queue_(queue), report_(std::move(report)) {
  // Statuses before what is made of them.
  for (const kube::ResourceType* type :
       {&kube::kKVCachePool, &kube::kPrefillPool, &kube::kDecodePool,
        &kube::kStatefulSet, &kube::kPod}) {
    auto stream = server.OpenWatch(
        *type, {.space = kModelSpace,
                .resource_version = std::to_string(server.version())});
    CHECK(stream.ok());
    watched_.push_back(
        std::make_unique<Watched>(Watched{type, *std::move(stream)}));
  }
}

ControllerAudit::~ControllerAudit() = default;

std::optional<int64_t> ControllerAudit::budget() const {
  if (family_.is_null()) return std::nullopt;
  const Json rebalancing = family_["spec"].value("rebalancing", Json::object());
  if (!rebalancing.contains("acceleratorBudget")) return std::nullopt;
  return rebalancing["acceleratorBudget"].get<int64_t>();
}

bool ControllerAudit::is_reactive() const {
  return budget().has_value() && family_["spec"]["rebalancing"].value(
                                     "policy", "Reactive") == "Reactive";
}

bool ControllerAudit::is_starved() const {
  int64_t wanted = 0;
  for (const auto& [name, pool] : pools_)
    wanted += pool.Target(is_reactive()) * pool.devices;
  return budget().has_value() && wanted > *budget();
}

void ControllerAudit::CheckWrite(const kube::ResourceType& type,
                                 std::string_view subresource) {
  const bool is_users = type == kube::kKVCachePool ||
                        type == kube::kPrefillPool || type == kube::kDecodePool;
  if (is_users && subresource != "status")
    report_(fmt::format("a controller writes to the spec of a {}", type.kind));
}

void ControllerAudit::Check() {
  for (const auto& watched : watched_) {
    while (true) {
      const auto event = watched->stream->Poll();
      CHECK(event.ok());
      if (!*event) break;
      if ((*event)->type != kube::EventType::kBookmark) Take(*watched, **event);
    }
  }
  CheckBudget();
}

void ControllerAudit::Take(const Watched& watched,
                           const kube::WatchEvent& event) {
  const Json& object = event.object;
  const std::string name = object["metadata"]["name"];
  const bool is_gone = event.type == kube::EventType::kDeleted;
  if (*watched.type == kube::kPod) {
    const std::string pool =
        object["metadata"]["labels"].value(reconcilers::kPoolLabel, "");
    if (pool.empty()) return;
    if (is_gone) {
      pods_.erase(name);
    } else {
      pods_[name] = {pool, DevicesOf(object)};
    }
  } else if (*watched.type == kube::kStatefulSet) {
    if (is_gone) {
      sets_.erase(name);
    } else {
      sets_[name] = {object["spec"]["replicas"].get<int64_t>(),
                     DevicesOf(object["spec"]["template"])};
    }
  } else if (*watched.type == kube::kKVCachePool) {
    family_ = is_gone ? Json() : object;
    const Json status = object.value("status", Json::object());
    if (status.value("rebalances", Json::array()).size() > kMovesMax)
      report_("status remembers more moves than ten");
  } else if (is_gone) {
    pools_.erase(name);
  } else {
    TakePool(*watched.type, object);
  }
}

void ControllerAudit::TakePool(const kube::ResourceType& type,
                               const Json& object) {
  const std::string name = object["metadata"]["name"];
  Pool after{.type = &type,
             .spec = object["spec"],
             .status = object.value("status", Json::object())};
  after.devices = DevicesOf({{"spec", {{"containers", {after.spec}}}}});
  const auto before = pools_.find(name);
  if (before != pools_.end()) {
    CountMoves(before->second, after);
    CheckPlan(name, before->second.status, after);
  }
  pools_[name] = std::move(after);
}

void ControllerAudit::NoteLeast() {
  for (const auto& [name, pool] : pools_) {
    int64_t& least = least_devices_[name];
    least = std::max(least,
                     pool.spec.value("minReplicas", int64_t{1}) * pool.devices);
  }
  if (budget().has_value()) least_budget_ = std::min(least_budget_, *budget());
}

// A plan is written on top of the spec it was made from, or not at all.
void ControllerAudit::CheckPlan(const std::string& name, const Json& before,
                                const Pool& after) {
  if (!after.status.contains("plannedReplicas") ||
      (before.contains("plannedReplicas") &&
       before["plannedReplicas"] == after.status["plannedReplicas"] &&
       before["plannedFromReplicas"] == after.status["plannedFromReplicas"]))
    return;
  NoteLeast();
  const auto planned = after.status["plannedReplicas"].get<int64_t>();
  const int64_t min = after.spec.value("minReplicas", int64_t{1});
  const int64_t max = after.spec.value("maxReplicas", int64_t{10'000});
  // Watches may be so late, each by itself, that the planner sees no state that
  // ever was.
  int64_t needed = 0;
  for (const auto& [pool, least] : least_devices_) needed += least;
  const bool may_seem_starved = needed > least_budget_;
  if (planned > max || (planned < min && !may_seem_starved))
    report_(fmt::format("{}: {} replicas planned, not within {}..{}", name,
                        planned, min, max));
}

void ControllerAudit::CountMoves(const Pool& before, const Pool& after) {
  const Loans old = LoansOf(before.status);
  for (const auto& [uid, loan] : LoansOf(after.status)) {
    const auto known = old.find(uid);
    const bool is_new = known == old.end() || known->second.first != loan.first;
    const bool turns =
        known != old.end() &&
        (known->second.second == "Returning") != (loan.second == "Returning");
    if (is_new || turns) ++flips_;
  }
  if (before.spec == after.spec && before.Target(true) != after.Target(true))
    ++scales_;
}

int64_t ControllerAudit::held() const {
  int64_t held = 0;
  for (const auto& [name, told] : sets_) held += told.replicas * told.devices;
  for (const auto& [name, pod] : pods_) {
    const auto told = sets_.find(pod.pool);
    const bool is_told = told != sets_.end() &&
                         reconcilers::OrdinalOf(name) < told->second.replicas;
    held += is_told ? std::max<int64_t>(0, pod.devices - told->second.devices)
                    : pod.devices;
  }
  return held;
}

std::string ControllerAudit::Holdings() const {
  std::string text;
  for (const auto& [name, told] : sets_) {
    text += fmt::format(" {} told {} of {}, has", name, told.replicas,
                        told.devices);
    for (const auto& [pod_name, pod] : pods_)
      if (pod.pool == name)
        text += fmt::format(" {} of {}", pod_name, pod.devices);
    text += ";";
  }
  return text;
}

void ControllerAudit::CheckBudget() {
  const std::optional<int64_t> budget = this->budget();
  if (!budget.has_value()) return;
  budgets_[*budget] = queue_.now();
  std::erase_if(budgets_, [this](const auto& entry) {
    return queue_.now() - entry.second > kCutUnseenFor;
  });
  NoteLeast();
  const int64_t now = held();
  // A budget that was cut: what is above it only goes.
  if (now > budgets_.rbegin()->first && now > last_held_)
    report_(fmt::format("{} devices held, {} before, budget {}:{}", now,
                        last_held_, *budget, Holdings()));
  last_held_ = now;
}

}  // namespace tidepool::sim
