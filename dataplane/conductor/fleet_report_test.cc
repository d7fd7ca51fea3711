#include "dataplane/conductor/fleet_report.h"

#include <gtest/gtest.h>

namespace tidepool::conductor {
namespace {

using std::chrono::milliseconds;

WorkerStatus Worker(const std::string& name, wire::Role role,
                    uint32_t running) {
  WorkerStatus worker{.name = name, .address = name + ":7000"};
  worker.connected = worker.ready = true;
  worker.description.set_incarnation(9);
  worker.description.set_role(role);
  worker.description.set_max_num_seqs(10);
  worker.load.set_running_requests(running);
  worker.load.set_pages_total(100);
  worker.load.set_pages_free(70);
  return worker;
}

TEST(FleetReportTest, TellsWhatIsKnown) {
  FleetSnapshot fleet;
  fleet.workers = {Worker("d", wire::ROLE_DECODE, 4)};
  fleet.workers[0].own_requests = 3;
  fleet.stats.requests = 7;
  fleet.stats.waiting = 2;
  fleet.stats.waiting_for_decode = 1;
  fleet.stats.waiting_prompt_tokens = 900;
  const ServingReport serving{.requests_total = 20,
                              .rejected_total = 1,
                              .prompt_tokens_total = 5000,
                              .cached_prompt_tokens_total = 1000,
                              .output_tokens_total = 400,
                              .ttft = {.count = 5, .p95 = milliseconds(250)}};
  const v1::WatchFleetResponse report =
      MakeFleetReport("c-0", 77, fleet, serving);
  EXPECT_EQ(report.conductor_id(), "c-0");
  EXPECT_EQ(report.incarnation(), 77u);
  EXPECT_EQ(report.waiting_requests(), 2u);
  EXPECT_EQ(report.waiting_for_decode(), 1u);
  EXPECT_EQ(report.waiting_prompt_tokens(), 900u);
  EXPECT_EQ(report.running_requests(), 5u);
  EXPECT_EQ(report.rejected_total(), 1u);
  EXPECT_EQ(report.cached_prompt_tokens_total(), 1000u);
  EXPECT_EQ(report.ttft().count(), 5u);
  EXPECT_DOUBLE_EQ(report.ttft().p95_ms(), 250);
  ASSERT_EQ(report.workers_size(), 1);
  EXPECT_EQ(report.workers(0).address(), "d:7000");
  EXPECT_EQ(report.workers(0).description().role(), wire::ROLE_DECODE);
  EXPECT_EQ(report.workers(0).load().running_requests(), 4u);
  EXPECT_EQ(report.workers(0).own_requests(), 3u);
}

TEST(FleetReportTest, SaysNothingOfAWorkerThatNeverAnswered) {
  FleetSnapshot fleet;
  fleet.workers = {{.name = "new", .address = "new:7000"}};
  const v1::WatchFleetResponse report = MakeFleetReport("c", 1, fleet, {});
  EXPECT_FALSE(report.workers(0).connected());
  EXPECT_FALSE(report.workers(0).has_description());
}

TEST(SaturationTest, IsTheShareOfPlacesOrPagesInUse) {
  FleetSnapshot fleet;
  fleet.workers = {Worker("p", wire::ROLE_PREFILL, 0),
                   Worker("d", wire::ROLE_DECODE, 9)};
  EXPECT_DOUBLE_EQ(SaturationOf(fleet).decode, 0.9);
  EXPECT_DOUBLE_EQ(SaturationOf(fleet).prefill, 0);
  fleet.workers[1].load.set_running_requests(1);
  EXPECT_DOUBLE_EQ(SaturationOf(fleet).decode, 0.3);
}

TEST(SaturationTest, WaitingRequestsPressOnWhatTheyWaitFor) {
  FleetSnapshot fleet;
  fleet.workers = {Worker("p", wire::ROLE_PREFILL, 0),
                   Worker("d", wire::ROLE_DECODE, 0)};
  fleet.workers[0].load.set_prefill_tokens_per_second(1000);
  fleet.workers[0].load.set_queued_prefill_tokens(1000);
  fleet.stats.waiting = 1;
  fleet.stats.waiting_prompt_tokens = 3000;
  // 4 s of work against the 2 s that stand in for an SLO.
  EXPECT_DOUBLE_EQ(SaturationOf(fleet).prefill, 2);
  fleet.stats.waiting_for_decode = 1;
  fleet.stats.waiting_prompt_tokens = 0;
  EXPECT_DOUBLE_EQ(SaturationOf(fleet).prefill, 0.5);
  EXPECT_GT(SaturationOf(fleet).decode, 0);
  fleet.workers[0].ready = false;
  EXPECT_DOUBLE_EQ(SaturationOf(fleet).prefill, scheduling::kPressureMax);
}

}  // namespace
}  // namespace tidepool::conductor
