#include "dataplane/scheduling/placement.h"

#include <gtest/gtest.h>

#include <vector>

namespace tidepool::scheduling {
namespace {

WorkerView Worker(WorkerId id, WorkerRole role) {
  return {.id = id,
          .role = role,
          .identity = 7,
          .ready = true,
          .pages_total = 100,
          .pages_free = 100,
          .max_requests = 4,
          .page_tokens = 16,
          .max_model_len = 2048};
}
WorkerView Prefill(WorkerId id) { return Worker(id, WorkerRole::kPrefill); }
WorkerView Decode(WorkerId id) { return Worker(id, WorkerRole::kDecode); }

Placement Place(const PlacementRequest& request,
                const std::vector<WorkerView>& workers) {
  return LeastLoadedPlacement().Place(request, workers);
}

TEST(LeastLoadedPlacementTest, PairsTheLeastLoadedOfEachRole) {
  std::vector<WorkerView> workers = {Prefill(1), Prefill(2), Decode(3),
                                     Decode(4)};
  workers[0].queued_prefill_tokens = 500;
  workers[2].running_requests = 2;
  const Placement placement = Place({.context_tokens = 100}, workers);
  EXPECT_EQ(placement.prefill, 2u);
  EXPECT_EQ(placement.decode, 4u);
  EXPECT_EQ(placement.reason, PlacementReason::kLeastLoaded);
}

TEST(LeastLoadedPlacementTest, CountsOwnWorkThatNoReportContainsYet) {
  std::vector<WorkerView> workers = {Prefill(1), Prefill(2), Decode(3),
                                     Decode(4)};
  workers[0].own_unreported_tokens = 100;
  workers[0].own_requests = 1;
  workers[2].own_requests = 1;
  const Placement placement = Place({.context_tokens = 100}, workers);
  EXPECT_EQ(placement.prefill, 2u);
  EXPECT_EQ(placement.decode, 4u);
}

TEST(LeastLoadedPlacementTest, NeverPairsDifferentIdentities) {
  std::vector<WorkerView> workers = {Prefill(1), Prefill(2), Decode(3)};
  workers[0].identity = 8;
  workers[1].queued_prefill_tokens = 100'000;
  EXPECT_EQ(Place({.context_tokens = 10}, workers).prefill, 2u);
  workers[1].ready = false;
  const Placement alone = Place({.context_tokens = 10}, workers);
  EXPECT_FALSE(alone.prefill.has_value());
  EXPECT_EQ(alone.decode, 3u);
  EXPECT_EQ(alone.reason, PlacementReason::kNoPrefillWorker);
}

TEST(LeastLoadedPlacementTest, ContinuesOnlyOnTheSameIdentity) {
  const std::vector<WorkerView> workers = {Decode(3)};
  EXPECT_FALSE(Place({.context_tokens = 10, .identity = 8}, workers).placed());
  EXPECT_TRUE(Place({.context_tokens = 10, .identity = 7}, workers).placed());
}

TEST(LeastLoadedPlacementTest, SaysWhyNothingFits) {
  std::vector<WorkerView> workers = {Prefill(1), Decode(3)};
  EXPECT_EQ(Place({.context_tokens = 2048}, workers).reason,
            PlacementReason::kTooLong);
  workers[1].pages_total = 6;
  EXPECT_EQ(Place({.context_tokens = 96}, workers).reason,
            PlacementReason::kTooLong);
  EXPECT_TRUE(Place({.context_tokens = 95}, workers).placed());
  workers[1].own_requests = 4;
  EXPECT_EQ(Place({.context_tokens = 10}, workers).reason,
            PlacementReason::kNoDecodeRoom);
  workers[1].ready = false;
  EXPECT_EQ(Place({.context_tokens = 10}, workers).reason,
            PlacementReason::kNoReadyWorker);
  EXPECT_EQ(Place({.context_tokens = 10}, {}).reason,
            PlacementReason::kNoReadyWorker);
}

TEST(LeastLoadedPlacementTest, PassesOverAPrefillWorkerThatIsTooSmall) {
  std::vector<WorkerView> workers = {Prefill(1), Prefill(2), Decode(3)};
  workers[0].pages_total = workers[0].pages_free = 6;
  workers[1].queued_prefill_tokens = 100'000;
  EXPECT_EQ(Place({.context_tokens = 95}, workers).prefill, 1u);
  EXPECT_EQ(Place({.context_tokens = 96}, workers).prefill, 2u);
  workers[1].ready = false;
  const Placement alone = Place({.context_tokens = 96}, workers);
  EXPECT_FALSE(alone.prefill.has_value());
  EXPECT_EQ(alone.decode, 3u);
}

TEST(LeastLoadedPlacementTest, AReportOfAnyNumbersIsJustALoad) {
  std::vector<WorkerView> workers = {Decode(3), Decode(4)};
  workers[0].waiting_requests = 0xFFFFFFFF;
  workers[0].running_requests = 1;
  workers[1].running_requests = 3;
  EXPECT_EQ(Place({.context_tokens = 10}, workers).decode, 4u);
}

TEST(LeastLoadedPlacementTest, WaitsForABusyDecodeWorkersPages) {
  std::vector<WorkerView> workers = {Decode(3)};
  workers[0].running_requests = 1;
  workers[0].pages_free = 7;
  EXPECT_TRUE(Place({.context_tokens = 100}, workers).placed());
  workers[0].own_unreported_tokens = 1;
  EXPECT_EQ(Place({.context_tokens = 100}, workers).reason,
            PlacementReason::kNoDecodeRoom);
}

TEST(LeastLoadedPlacementTest, WaitsForPrefillRatherThanBurdenDecode) {
  std::vector<WorkerView> workers = {Prefill(1), Decode(3)};
  workers[0].own_requests = 4;
  const Placement placement = Place({.context_tokens = 10}, workers);
  EXPECT_FALSE(placement.placed());
  EXPECT_EQ(placement.reason, PlacementReason::kNoPrefillRoom);
}

TEST(LeastLoadedPlacementTest, UsesAnExcludedWorkerOnlyAsTheLastResort) {
  std::vector<WorkerView> workers = {Decode(3), Decode(4)};
  workers[0].excluded = true;
  workers[1].running_requests = 3;
  EXPECT_EQ(Place({.context_tokens = 10}, workers).decode, 4u);
  workers[1].ready = false;
  const Placement placement = Place({.context_tokens = 10}, workers);
  EXPECT_EQ(placement.decode, 3u);
  EXPECT_EQ(placement.reason, PlacementReason::kLastResort);
}

}  // namespace
}  // namespace tidepool::scheduling
