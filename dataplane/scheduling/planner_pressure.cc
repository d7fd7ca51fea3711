#include <algorithm>

#include "dataplane/scheduling/planner.h"

namespace tidepool::scheduling {
namespace {

// No device is faster; who says so is not believed, nor counted.
constexpr double kTokensPerSecondMax = 1e12;

// What the ready instances of one role hold together.
struct RoleLoad {
  uint32_t ready = 0;
  double queued_prefill_tokens = 0;
  uint64_t waiting_requests = 0, running_requests = 0, max_requests = 0;
  uint64_t pages_used = 0, pages_total = 0;
  double speed_sum = 0;  // of those that measured theirs
  uint32_t speeds = 0;

  void Add(const PlannerInstance& instance) {
    ++ready;
    queued_prefill_tokens +=
        static_cast<double>(instance.queued_prefill_tokens);
    waiting_requests += instance.waiting_requests;
    running_requests += instance.running_requests;
    max_requests += instance.max_requests;
    pages_total += instance.pages_total;
    pages_used += instance.pages_total -
                  std::min(instance.pages_total, instance.pages_free);
    if (instance.prefill_tokens_per_second > 0 &&
        instance.prefill_tokens_per_second < kTokensPerSecondMax) {
      speed_sum += instance.prefill_tokens_per_second;
      ++speeds;
    }
  }

  // Instances that did not prefill yet are taken to be like the others.
  double Speed() const { return speeds == 0 ? 0 : speed_sum / speeds * ready; }
};

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

double PrefillPressure(const RoleLoad& load, const FleetView& view,
                       Duration ttft_slo) {
  if (load.ready == 0) return view.waiting_requests > 0 ? kPressureMax : 0;
  // More prefill instances would not help those who wait for decode.
  const double waiting =
      static_cast<double>(
          view.waiting_requests -
          std::min(view.waiting_requests, view.waiting_for_decode)) +
      static_cast<double>(load.waiting_requests);
  const double tokens = static_cast<double>(view.waiting_prompt_tokens) +
                        load.queued_prefill_tokens;
  const double slo =
      Seconds(ttft_slo > Duration(0) ? ttft_slo : kDefaultTtftSlo).count();
  double pressure = load.speeds > 0 ? tokens / load.Speed() / slo
                                    : waiting / load.ready / kWaitingFull;
  // A TTFT measured while nothing waits is not a lack of prefill instances.
  if (ttft_slo > Duration(0) && waiting > 0)
    pressure = std::max(pressure, Seconds(view.ttft).count() / slo);
  return pressure;
}

double DecodePressure(const RoleLoad& load, const FleetView& view,
                      Duration tbt_slo) {
  if (load.ready == 0) {
    return view.waiting_requests + load.running_requests > 0 ? kPressureMax : 0;
  }
  const double wanted =
      static_cast<double>(load.running_requests) + view.waiting_for_decode;
  double pressure =
      std::max(Ratio(wanted, static_cast<double>(load.max_requests)),
               Ratio(static_cast<double>(load.pages_used),
                     static_cast<double>(load.pages_total)));
  if (tbt_slo > Duration(0) && load.running_requests > 0)
    pressure = std::max(
        pressure, Ratio(Seconds(view.tbt).count(), Seconds(tbt_slo).count()));
  return pressure;
}

}  // namespace

PoolPressure Pressure(const FleetView& view, const PlannerConfig& config) {
  RoleLoad prefill, decode;
  for (const PlannerInstance& instance : view.instances) {
    if (!instance.ready || !instance.role.has_value() || instance.terminating)
      continue;
    (*instance.role == WorkerRole::kPrefill ? prefill : decode).Add(instance);
  }
  PoolPressure pressure;
  pressure.decode = DecodePressure(decode, view, config.tbt_slo);
  // A fleet without prefill pools prefills where it decodes.
  const bool has_prefill_pool =
      std::ranges::any_of(view.pools, [](const PlannerPool& pool) {
        return pool.role == WorkerRole::kPrefill;
      });
  if (prefill.ready > 0 || has_prefill_pool) {
    pressure.prefill = PrefillPressure(prefill, view, config.ttft_slo);
  } else {
    pressure.decode = std::max(pressure.decode,
                               PrefillPressure(decode, view, config.ttft_slo));
  }
  pressure.prefill = std::min(pressure.prefill, kPressureMax);
  pressure.decode = std::min(pressure.decode, kPressureMax);
  return pressure;
}

std::vector<uint32_t> GrantReplicas(std::span<const ReplicaGrant> pools,
                                    std::optional<uint32_t> budget) {
  std::vector<uint32_t> granted;
  granted.reserve(pools.size());
  uint64_t held = 0;
  for (const ReplicaGrant& pool : pools)
    held += uint64_t{pool.observed} * pool.devices_per_replica;
  uint64_t room = budget.has_value() && *budget > held ? *budget - held : 0;
  for (const ReplicaGrant& pool : pools) {
    const uint32_t kept = std::min(pool.planned, pool.observed);
    uint32_t grown = pool.planned - kept;
    if (budget.has_value() && pool.devices_per_replica > 0) {
      grown = static_cast<uint32_t>(
          std::min<uint64_t>(grown, room / pool.devices_per_replica));
      room -= uint64_t{grown} * pool.devices_per_replica;
    }
    granted.push_back(kept + grown);
  }
  return granted;
}

}  // namespace tidepool::scheduling
