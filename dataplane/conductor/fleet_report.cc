#include "dataplane/conductor/fleet_report.h"

namespace tidepool::conductor {
namespace {

double Milliseconds(Duration time) { return Seconds(time).count() * 1000; }

void Fill(const LatencyQuantiles& from, v1::LatencyWindow& to) {
  to.set_count(from.count);
  to.set_p50_ms(Milliseconds(from.p50));
  to.set_p90_ms(Milliseconds(from.p90));
  to.set_p95_ms(Milliseconds(from.p95));
  to.set_p99_ms(Milliseconds(from.p99));
}

scheduling::PlannerInstance InstanceOf(const WorkerStatus& worker) {
  const wire::WorkerLoad& load = worker.load;
  return {.id = worker.name,
          .role = worker.description.role() == wire::ROLE_PREFILL
                      ? scheduling::WorkerRole::kPrefill
                      : scheduling::WorkerRole::kDecode,
          .ready = worker.ready,
          .queued_prefill_tokens = load.queued_prefill_tokens(),
          .prefill_tokens_per_second = load.prefill_tokens_per_second(),
          .waiting_requests = load.waiting_requests(),
          .running_requests = load.running_requests(),
          .max_requests = worker.description.max_num_seqs(),
          .pages_total = load.pages_total(),
          .pages_free = load.pages_free()};
}

}  // namespace

v1::WatchFleetResponse MakeFleetReport(const std::string& conductor_id,
                                       uint64_t incarnation,
                                       const FleetSnapshot& fleet,
                                       const ServingReport& serving) {
  v1::WatchFleetResponse report;
  report.set_conductor_id(conductor_id);
  report.set_incarnation(incarnation);
  report.set_waiting_requests(fleet.stats.waiting);
  report.set_waiting_for_decode(fleet.stats.waiting_for_decode);
  report.set_waiting_prompt_tokens(fleet.stats.waiting_prompt_tokens);
  report.set_running_requests(fleet.stats.requests - fleet.stats.waiting);
  report.set_requests_total(serving.requests_total);
  report.set_rejected_total(serving.rejected_total);
  report.set_prompt_tokens_total(serving.prompt_tokens_total);
  report.set_cached_prompt_tokens_total(serving.cached_prompt_tokens_total);
  report.set_output_tokens_total(serving.output_tokens_total);
  Fill(serving.ttft, *report.mutable_ttft());
  Fill(serving.tbt, *report.mutable_tbt());
  for (const WorkerStatus& worker : fleet.workers) {
    v1::WorkerReport& told = *report.add_workers();
    told.set_name(worker.name);
    told.set_address(worker.address);
    told.set_connected(worker.connected);
    if (worker.description.incarnation() != 0)
      *told.mutable_description() = worker.description;
    *told.mutable_load() = worker.load;
    told.set_own_requests(worker.own_requests);
  }
  return report;
}

scheduling::PoolPressure SaturationOf(const FleetSnapshot& fleet) {
  scheduling::FleetView view;
  view.waiting_requests = fleet.stats.waiting;
  view.waiting_for_decode = fleet.stats.waiting_for_decode;
  view.waiting_prompt_tokens = fleet.stats.waiting_prompt_tokens;
  bool has_prefill = false;
  for (const WorkerStatus& worker : fleet.workers) {
    has_prefill |= worker.description.role() == wire::ROLE_PREFILL;
    view.instances.push_back(InstanceOf(worker));
  }
  if (has_prefill)  // also while none of them is ready
    view.pools.push_back({.role = scheduling::WorkerRole::kPrefill});
  return scheduling::Pressure(view, {});
}

}  // namespace tidepool::conductor
