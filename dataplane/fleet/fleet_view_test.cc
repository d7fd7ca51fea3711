#include "dataplane/fleet/fleet_view.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace tidepool::fleet {
namespace {

using namespace std::chrono_literals;
using scheduling::FleetView;
using scheduling::PlannerInstance;
using scheduling::WorkerRole;

constexpr TimePoint kNow(1000s);

WatchFleetResponse Waiting(uint32_t requests, uint64_t tokens) {
  WatchFleetResponse report;
  report.set_waiting_requests(requests);
  report.set_waiting_prompt_tokens(tokens);
  return report;
}

ConductorReport At(TimePoint at, WatchFleetResponse report) {
  return {.address = "conductor:8002",
          .report = std::make_shared<const WatchFleetResponse>(report),
          .at = at};
}

void AddWorker(WatchFleetResponse& report, std::string address, bool connected,
               worker::v1::Role role, uint32_t running) {
  WorkerReport& worker = *report.add_workers();
  worker.set_address(std::move(address));
  worker.set_connected(connected);
  worker.mutable_description()->set_role(role);
  worker.mutable_load()->set_running_requests(running);
}

FleetView StatisticsOf(std::vector<ConductorReport> reports,
                       int percentile = 95) {
  FleetView view;
  view.waiting_requests = 99;  // of an earlier turn
  FleetReports(std::move(reports), kNow, 10s).FillStatistics(percentile, view);
  return view;
}

TEST(FleetReportsTest, SumsWhatWaitsAtAllConductors) {
  const FleetView view =
      StatisticsOf({At(kNow - 1s, Waiting(2, 300)), At(kNow, Waiting(3, 50))});
  EXPECT_EQ(view.waiting_requests, 5u);
  EXPECT_EQ(view.waiting_prompt_tokens, 350u);
  EXPECT_EQ(view.statistics_at, kNow - 1s);
}

TEST(FleetReportsTest, AConductorThatFellSilentHoldsUpNobody) {
  const FleetView view = StatisticsOf({At(kNow - 11s, Waiting(7, 700)),
                                       At(kNow, Waiting(1, 10)),
                                       {.address = "never heard"}});
  EXPECT_EQ(view.waiting_requests, 1u);
  EXPECT_EQ(view.statistics_at, kNow);
}

TEST(FleetReportsTest, WithoutFreshReportsThereAreNoStatistics) {
  const FleetView view = StatisticsOf({At(kNow - 11s, Waiting(7, 700))});
  EXPECT_EQ(view.statistics_at, std::nullopt);
  EXPECT_EQ(view.waiting_requests, 0u);
}

TEST(FleetReportsTest, SumsDoNotWrap) {
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  const FleetView view =
      StatisticsOf({At(kNow, Waiting(kMost, 1)), At(kNow, Waiting(5, 1))});
  EXPECT_EQ(view.waiting_requests, kMost);
}

TEST(FleetReportsTest, TakesTheWorstLatencyAtThePercentile) {
  WatchFleetResponse slow, fast, idle;
  for (auto* report : {&slow, &fast, &idle}) {
    conductor::v1::LatencyWindow& window = *report->mutable_ttft();
    const double scale = report == &slow ? 2 : report == &fast ? 1 : 100;
    window.set_count(report == &idle ? 0 : 10);
    window.set_p50_ms(1 * scale);
    window.set_p90_ms(2 * scale);
    window.set_p95_ms(3 * scale);
    window.set_p99_ms(4 * scale);
  }
  const auto ttft = [&](int percentile) {
    return StatisticsOf({At(kNow, slow), At(kNow, fast), At(kNow, idle)},
                        percentile)
        .ttft;
  };
  EXPECT_EQ(ttft(50), 2ms);
  EXPECT_EQ(ttft(51), 4ms);
  EXPECT_EQ(ttft(95), 6ms);
  EXPECT_EQ(ttft(96), 8ms);
}

TEST(FleetReportsTest, NonsensicalLatenciesDoNotOverflow) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(), -1.0}) {
    WatchFleetResponse report;
    report.mutable_tbt()->set_count(1);
    report.mutable_tbt()->set_p95_ms(bad);
    const Duration tbt = StatisticsOf({At(kNow, report)}).tbt;
    EXPECT_GE(tbt, 0s) << bad;
    EXPECT_LE(tbt, 7 * 24h) << bad;
  }
}

TEST(FleetReportsTest, BelievesAConductorThatIsConnectedToTheWorker) {
  WatchFleetResponse newer, older;
  AddWorker(newer, "w:7000", false, worker::v1::ROLE_PREFILL, 1);
  AddWorker(older, "w:7000", true, worker::v1::ROLE_PREFILL, 2);
  const FleetReports reports({At(kNow - 1s, older), At(kNow, newer)}, kNow,
                             10s);
  ASSERT_NE(reports.FindWorker("w:7000"), nullptr);
  EXPECT_EQ(reports.FindWorker("w:7000")->load().running_requests(), 2u);
  EXPECT_EQ(reports.FindWorker("other:7000"), nullptr);
}

TEST(FleetReportsTest, BelievesTheNewestOfThoseConnected) {
  WatchFleetResponse newer, older;
  AddWorker(newer, "w:7000", true, worker::v1::ROLE_PREFILL, 1);
  AddWorker(older, "w:7000", true, worker::v1::ROLE_PREFILL, 2);
  const FleetReports reports({At(kNow - 1s, older), At(kNow, newer)}, kNow,
                             10s);
  EXPECT_EQ(reports.FindWorker("w:7000")->load().running_requests(), 1u);
}

WorkerReport Serving() {
  WorkerReport worker;
  worker.set_connected(true);
  worker::v1::DescribeResponse& description = *worker.mutable_description();
  description.set_role(worker::v1::ROLE_PREFILL);
  description.set_ready(true);
  description.set_max_num_seqs(8);
  worker::v1::WorkerLoad& load = *worker.mutable_load();
  load.set_waiting_requests(1);
  load.set_running_requests(2);
  load.set_queued_prefill_tokens(3);
  load.set_prefill_tokens_per_second(4);
  load.set_pages_total(50);
  load.set_pages_free(6);
  return worker;
}

TEST(FillInstanceTest, TranslatesAServingWorker) {
  PlannerInstance instance{.id = "uid", .pool = "p"};
  const WorkerReport worker = Serving();
  FillInstance(&worker, instance);
  EXPECT_EQ(instance.id, "uid");
  EXPECT_EQ(instance.role, WorkerRole::kPrefill);
  EXPECT_TRUE(instance.ready);
  EXPECT_FALSE(instance.switching);
  EXPECT_EQ(instance.waiting_requests, 1u);
  EXPECT_EQ(instance.running_requests, 2u);
  EXPECT_EQ(instance.max_requests, 8u);
  EXPECT_EQ(instance.queued_prefill_tokens, 3u);
  EXPECT_EQ(instance.prefill_tokens_per_second, 4);
  EXPECT_EQ(instance.pages_total, 50u);
  EXPECT_EQ(instance.pages_free, 6u);
}

TEST(FillInstanceTest, SaysThatARoleIsChanging) {
  WorkerReport worker = Serving();
  worker.mutable_description()->mutable_role_state()->set_target(
      worker::v1::ROLE_DECODE);
  PlannerInstance instance;
  FillInstance(&worker, instance);
  EXPECT_TRUE(instance.switching);
  EXPECT_EQ(instance.role, WorkerRole::kPrefill);
}

TEST(FillInstanceTest, AnEndingWorkerIsNotReady) {
  WorkerReport described = Serving(), loaded = Serving();
  described.mutable_description()->set_draining(true);
  loaded.mutable_load()->set_draining(true);
  for (const WorkerReport& worker : {described, loaded}) {
    PlannerInstance instance;
    FillInstance(&worker, instance);
    EXPECT_FALSE(instance.ready);
    EXPECT_TRUE(instance.role.has_value());
  }
}

TEST(FillInstanceTest, WhoCannotBeReachedHasNoRole) {
  WorkerReport away = Serving(), silent = Serving(), strange = Serving();
  away.set_connected(false);
  silent.clear_description();
  strange.mutable_description()->set_role(worker::v1::ROLE_UNSPECIFIED);
  for (const WorkerReport* worker :
       {static_cast<const WorkerReport*>(nullptr),
        static_cast<const WorkerReport*>(&away),
        static_cast<const WorkerReport*>(&silent),
        static_cast<const WorkerReport*>(&strange)}) {
    PlannerInstance instance{.role = WorkerRole::kDecode, .ready = true};
    FillInstance(worker, instance);
    EXPECT_EQ(instance.role, std::nullopt);
    EXPECT_FALSE(instance.ready);
  }
}

}  // namespace
}  // namespace tidepool::fleet
