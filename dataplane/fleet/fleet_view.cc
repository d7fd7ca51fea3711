#include "dataplane/fleet/fleet_view.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "dataplane/fleet/role.h"

namespace tidepool::fleet {
namespace {

using conductor::v1::LatencyWindow;

double MillisecondsAt(const LatencyWindow& window, int percentile) {
  if (window.count() == 0) return 0;
  if (percentile <= 50) return window.p50_ms();
  if (percentile <= 90) return window.p90_ms();
  if (percentile <= 95) return window.p95_ms();
  return window.p99_ms();
}

Duration FromMilliseconds(double milliseconds) {
  // What no request can take is a bad figure; it must not overflow.
  constexpr double kMillisecondsMax = 7 * 24 * 3600 * 1000.0;
  if (!(milliseconds > 0)) return Duration(0);
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(
          std::min(milliseconds, kMillisecondsMax)));
}

uint32_t SaturatingSum(uint32_t a, uint32_t b) {
  return a > std::numeric_limits<uint32_t>::max() - b
             ? std::numeric_limits<uint32_t>::max()
             : a + b;
}

}  // namespace

FleetReports::FleetReports(std::vector<ConductorReport> reports, TimePoint now,
                           Duration age_max)
    : reports_(std::move(reports)) {
  std::erase_if(reports_, [&](const ConductorReport& told) {
    return told.report == nullptr || now - told.at > age_max;
  });
  std::ranges::stable_sort(reports_, std::ranges::greater{},
                           &ConductorReport::at);
  for (const ConductorReport& told : reports_) {
    for (const WorkerReport& worker : told.report->workers()) {
      const auto [known, is_new] =
          workers_.try_emplace(worker.address(), &worker);
      if (!is_new && !known->second->connected() && worker.connected())
        known->second = &worker;
    }
  }
}

void FleetReports::FillStatistics(int percentile,
                                  scheduling::FleetView& view) const {
  view.statistics_at.reset();
  view.waiting_requests = 0;
  view.waiting_for_decode = 0;
  view.waiting_prompt_tokens = 0;
  view.ttft = view.tbt = Duration(0);
  for (const ConductorReport& told : reports_) {
    const WatchFleetResponse& report = *told.report;
    view.statistics_at = told.at;  // in the end that of the oldest
    view.waiting_requests =
        SaturatingSum(view.waiting_requests, report.waiting_requests());
    view.waiting_for_decode =
        SaturatingSum(view.waiting_for_decode, report.waiting_for_decode());
    view.waiting_prompt_tokens += report.waiting_prompt_tokens();
    view.ttft = std::max(
        view.ttft, FromMilliseconds(MillisecondsAt(report.ttft(), percentile)));
    view.tbt = std::max(
        view.tbt, FromMilliseconds(MillisecondsAt(report.tbt(), percentile)));
  }
}

const WorkerReport* FleetReports::FindWorker(std::string_view address) const {
  const auto worker = workers_.find(std::string(address));
  return worker == workers_.end() ? nullptr : worker->second;
}

void FillInstance(const WorkerReport* worker,
                  scheduling::PlannerInstance& instance) {
  instance.role.reset();
  instance.switching = instance.ready = false;
  if (worker == nullptr || !worker->connected() || !worker->has_description())
    return;
  const worker::v1::DescribeResponse& description = worker->description();
  const worker::v1::WorkerLoad& load = worker->load();
  instance.role = FromWire(description.role());
  if (!instance.role.has_value()) return;
  instance.switching =
      description.role_state().target() != worker::v1::ROLE_UNSPECIFIED;
  instance.ready =
      description.ready() && !description.draining() && !load.draining();
  instance.queued_prefill_tokens = load.queued_prefill_tokens();
  instance.prefill_tokens_per_second =
      std::max(0.0, load.prefill_tokens_per_second());
  instance.waiting_requests = load.waiting_requests();
  instance.running_requests = load.running_requests();
  instance.max_requests = description.max_num_seqs();
  instance.pages_total = load.pages_total();
  instance.pages_free = load.pages_free();
}

}  // namespace tidepool::fleet
