#include "controller/reconcilers/rebalancing/view.h"

#include <algorithm>
#include <cmath>

#include "controller/reconcilers/rebalancing/loans.h"

namespace tidepool::reconcilers {
namespace {

using scheduling::FleetView;
using scheduling::PlannerInstance;
using scheduling::PlannerPool;

Duration FromMs(double ms) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(std::clamp(ms, 0.0, 1e9)));
}

std::optional<uint32_t> CountAt(const Json& status, const char* name) {
  if (!status.is_object()) return std::nullopt;
  const auto found = status.find(name);
  if (found == status.end() || !found->is_number_integer()) return std::nullopt;
  return static_cast<uint32_t>(
      std::clamp<int64_t>(found->get<int64_t>(), 0, kReplicasMax));
}

PlannerPool PoolView(const PoolState& pool) {
  PlannerPool view{
      .name = pool.observed->name(),
      .role = RoleOf(pool),
      .wished_replicas = static_cast<uint32_t>(pool.spec.replicas),
      .min_replicas = static_cast<uint32_t>(pool.spec.min_replicas),
      .max_replicas = static_cast<uint32_t>(pool.spec.max_replicas),
      .devices_per_replica = pool.spec.resources.Devices(),
      .lendable = pool.spec.is_lendable,
      .planned_replicas = CountAt(pool.observed->status, "plannedReplicas"),
      .planned_from = CountAt(pool.observed->status, "plannedFromReplicas"),
  };
  if (!pool.problems.empty() || pool.observed->resource->deleting) {
    // What it holds counts; nothing of it can be moved.
    const uint32_t held = ReplicasHeld(*pool.observed);
    view.wished_replicas = view.min_replicas = view.max_replicas = held;
    view.planned_replicas = view.planned_from = held;
    view.lendable = false;
  }
  return view;
}

PlannerInstance InstanceView(const PoolState& pool, const PodView& pod,
                             const std::vector<Loan>& loans,
                             const WorkerSeen* worker) {
  PlannerInstance view{.id = pod.uid,
                       .pool = pool.observed->name(),
                       .planned_role = RoleOf(pool),
                       .terminating = pod.terminating};
  const auto loan = std::ranges::find(loans, pod.uid, &Loan::uid);
  if (loan != loans.end() && loan->phase != Loan::Phase::kReturning)
    view.planned_role = loan->role;
  if (worker == nullptr || worker->host != pod.ip) return view;
  view.role = worker->role;
  view.switching = worker->target.has_value();
  view.ready = worker->ready && !worker->draining && pod.ready;
  view.queued_prefill_tokens = worker->queued_prefill_tokens;
  view.prefill_tokens_per_second = worker->prefill_tokens_per_second;
  view.waiting_requests = worker->waiting_requests;
  view.running_requests = worker->running_requests;
  view.max_requests = worker->max_requests;
  view.pages_total = worker->pages_total;
  view.pages_free = worker->pages_free;
  return view;
}

}  // namespace

double LatencySeen::At(int percent) const {
  return percent > 95   ? p99_ms
         : percent > 90 ? p95_ms
         : percent > 50 ? p90_ms
                        : p50_ms;
}

FleetView MakeView(const FamilyState& family, const FleetSnapshot& fleet,
                   const std::map<std::string, WorkerSeen>& workers,
                   TimePoint now, Duration age_max) {
  FleetView view;
  for (const PoolState& pool : family.pools) {
    view.pools.push_back(PoolView(pool));
    const std::vector<Loan> loans = ReadLoans(pool.observed->status);
    for (const auto& pod : pool.observed->pods) {
      if (pod->finished) continue;
      const auto worker = workers.find(pod->key.name);
      view.instances.push_back(
          InstanceView(pool, *pod, loans,
                       worker == workers.end() ? nullptr : &worker->second));
    }
  }
  const int percentile = family.spec.slo.percentile;
  for (const ConductorSeen& conductor : fleet) {
    if (now - conductor.at > age_max) continue;
    view.statistics_at =
        std::max(view.statistics_at.value_or(conductor.at), conductor.at);
    view.waiting_requests += conductor.waiting_requests;
    view.waiting_for_decode += conductor.waiting_for_decode;
    view.waiting_prompt_tokens += conductor.waiting_prompt_tokens;
    // Each conductor serves its own clients: the worst counts.
    if (conductor.ttft.count > 0)
      view.ttft = std::max(view.ttft, FromMs(conductor.ttft.At(percentile)));
    if (conductor.tbt.count > 0)
      view.tbt = std::max(view.tbt, FromMs(conductor.tbt.At(percentile)));
  }
  return view;
}

std::optional<FleetFigures> FiguresOf(const FamilyState& family,
                                      const FleetSnapshot& fleet, TimePoint now,
                                      Duration age_max) {
  const auto workers = MergeWorkers(fleet, now, age_max);
  const FleetView view = MakeView(family, fleet, workers, now, age_max);
  if (!view.statistics_at.has_value()) return std::nullopt;
  FleetFigures figures;
  const auto to_ms = [](Duration time) -> std::optional<int64_t> {
    if (time == Duration(0)) return std::nullopt;
    return std::chrono::ceil<std::chrono::milliseconds>(time).count();
  };
  figures.ttft_ms = to_ms(view.ttft);
  figures.tbt_ms = to_ms(view.tbt);
  uint64_t prompt = 0, cached = 0;
  for (const ConductorSeen& conductor : fleet) {
    prompt += conductor.prompt_tokens_total;
    cached += conductor.cached_prompt_tokens_total;
  }
  if (prompt > 0)
    figures.hit_rate_percent =
        std::lround(100 * std::min(1.0, static_cast<double>(cached) /
                                            static_cast<double>(prompt)));
  const scheduling::PoolPressure pressure =
      scheduling::Pressure(view, family.spec.PlannerConfig());
  figures.saturation_percent =
      std::lround(100 * std::max(pressure.prefill, pressure.decode));
  return figures;
}

}  // namespace tidepool::reconcilers
