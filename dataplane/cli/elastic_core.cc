#include "dataplane/cli/elastic_core.h"

#include <algorithm>
#include <utility>

namespace tidepool::cli {
namespace {

using scheduling::FleetView;
using scheduling::PlannerInstance;
using scheduling::PlannerPool;
using scheduling::WorkerRole;

constexpr int kPercentile = 95;  // of the latencies that SLOs bound

std::string NameOf(WorkerRole role) {
  return role == WorkerRole::kPrefill ? "prefill" : "decode";
}

scheduling::PlannerConfig PlannerConfigOf(const ElasticConfig& config) {
  scheduling::PlannerConfig planner;
  planner.ttft_slo = config.ttft_slo;
  planner.tbt_slo = config.tbt_slo;
  planner.stabilization = config.stabilization;
  planner.cooldown = std::min(planner.cooldown, config.stabilization);
  return planner;
}

// One pool for each role, of a size that stays.
std::vector<PlannerPool> PoolsOf(const std::vector<ElasticWorker>& workers) {
  std::vector<PlannerPool> pools;
  for (const WorkerRole role : {WorkerRole::kPrefill, WorkerRole::kDecode}) {
    const auto size = static_cast<uint32_t>(
        std::ranges::count(workers, role, &ElasticWorker::role));
    pools.push_back({.name = NameOf(role),
                     .role = role,
                     .wished_replicas = size,
                     .min_replicas = 0,
                     .max_replicas = size,
                     .planned_replicas = size,
                     .planned_from = size});
  }
  return pools;
}

}  // namespace

ElasticCore::ElasticCore(const ElasticConfig& config,
                         std::vector<ElasticWorker> workers, uint64_t term,
                         TimePoint now)
    : config_(config),
      statistics_age_max_(PlannerConfigOf(config).statistics_age_max),
      planner_(PlannerConfigOf(config)),
      keeper_(term),
      pools_(PoolsOf(workers)),
      statistics_at_(now) {
  for (ElasticWorker& worker : workers) {
    const WorkerRole role = worker.role;
    workers_.push_back({std::move(worker), role});
  }
}

ElasticCore::Turn ElasticCore::Decide(
    const std::vector<fleet::ConductorReport>& reports, TimePoint now) {
  Turn turn;
  const fleet::FleetReports fresh(reports, now, statistics_age_max_);
  const FleetView view = View(fresh);
  NoteStatistics(reports, view.statistics_at.has_value(), now, turn);
  for (const scheduling::Move& move : planner_.Decide(view, now).moves)
    Carry(move, turn);
  std::vector<fleet::RoleWish> wishes;
  for (const Worker& worker : workers_)
    wishes.push_back({.id = worker.name,
                      .role = worker.planned,
                      .worker = fresh.FindWorker(worker.address),
                      .drain_timeout = config_.drain_timeout});
  turn.calls = keeper_.Next(wishes, now);
  return turn;
}

FleetView ElasticCore::View(const fleet::FleetReports& reports) const {
  FleetView view{.pools = pools_};
  reports.FillStatistics(kPercentile, view);
  for (const Worker& worker : workers_) {
    PlannerInstance& instance = view.instances.emplace_back(
        PlannerInstance{.id = worker.name,
                        .pool = NameOf(worker.role),
                        .planned_role = worker.planned});
    fleet::FillInstance(reports.FindWorker(worker.address), instance);
  }
  return view;
}

void ElasticCore::Carry(const scheduling::Move& move, Turn& turn) {
  if (!move.flip.has_value()) return;  // sizes stay
  const auto worker =
      std::ranges::find(workers_, move.flip->instance, &Worker::name);
  if (worker == workers_.end()) return;
  worker->planned = move.flip->to;
  turn.lines.push_back(
      fmt::format("{}: {}", scheduling::NameOf(move.reason), move.explanation));
}

void ElasticCore::NoteStatistics(
    const std::vector<fleet::ConductorReport>& reports, bool are_fresh,
    TimePoint now, Turn& turn) {
  if (are_fresh) {
    statistics_at_ = now;
    if (std::exchange(blind_, false))
      turn.lines.push_back("the conductor reports again");
    return;
  }
  if (blind_ || now - statistics_at_ <= statistics_age_max_) return;
  blind_ = true;
  const bool has_reason = !reports.empty() && !reports[0].status.ok();
  turn.lines.push_back(fmt::format(
      "no statistics from the conductor: roles stay as they are{}{}",
      has_reason ? ": " : "", has_reason ? MessageOf(reports[0].status) : ""));
}

std::string ElasticCore::OnAnswer(const fleet::FleetClient::RoleAnswer& answer,
                                  TimePoint now) {
  const Status& outcome = answer.state.status();
  keeper_.OnAnswer(answer.id, outcome, now);
  return outcome.ok() ? ""
                      : fmt::format("{} did not take its role: {}", answer.id,
                                    MessageOf(outcome));
}

}  // namespace tidepool::cli
