#include "controller/reconcilers/rebalancing/rebalancer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/family_test_util.h"
#include "controller/reconcilers/rebalancing/loans.h"

namespace tidepool::reconcilers {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kPrefill[] = "demo-prefill";
constexpr char kDecode[] = "demo-decode";

// Two prefill and two decode workers in a budget of four.
class RebalancerTest : public ::testing::Test {
 protected:
  void Start() {
    world().CreateDemo(2, 2);
    world().PatchSpec(
        kube::kKVCachePool, "demo",
        {{"slo", {{"ttftMilliseconds", 1000}}},
         {"rebalancing",
          {{"acceleratorBudget", 4}, {"stabilizationSeconds", 5}}}});
    ASSERT_TRUE(world().Run());
  }

  FamilyWorld& world() { return *owner_; }

  // What the conductors tell: how full each role is, from 0 to 1 and more.
  void SetLoad(double prefill, double decode) {
    prefill_load_ = prefill;
    decode_load_ = decode;
  }

  // One second of the fleet's life.
  void Second() {
    world().clock.Advance(std::chrono::seconds(1));
    world().Report();
    for (auto& [name, worker] : world().fleet.workers) {
      const bool prefills = worker.role == WorkerRole::kPrefill;
      worker.prefill_tokens_per_second = 1000;
      worker.pages_total = 100;
      worker.pages_free = 100;
      worker.queued_prefill_tokens =
          prefills ? static_cast<uint64_t>(1000 * prefill_load_) : 0;
      worker.running_requests =
          prefills ? 0 : static_cast<uint32_t>(8 * decode_load_);
    }
    world().ReconcileAll();
    ASSERT_TRUE(world().Run());
  }
  void Seconds(int n) {
    for (int i = 0; i < n; ++i) Second();
  }

  std::vector<Loan> Loans(const char* pool) {
    const auto& type =
        pool == kPrefill ? kube::kPrefillPool : kube::kDecodePool;
    return ReadLoans(world().Get(type, pool)["status"]);
  }
  int CountRole(WorkerRole role) {
    int count = 0;
    for (const auto& [name, worker] : world().fleet.workers)
      if (worker.role == role) ++count;
    return count;
  }
  // Roles, loans and labels tell the same story.
  void ExpectConsistent() {
    for (const char* pool : {kPrefill, kDecode}) {
      const WorkerRole own =
          pool == kPrefill ? WorkerRole::kPrefill : WorkerRole::kDecode;
      std::map<std::string, WorkerRole> lent;
      for (const Loan& loan : Loans(pool)) {
        EXPECT_EQ(loan.phase, Loan::Phase::kLent) << loan.pod;
        lent[loan.pod] = loan.role;
      }
      for (const auto& [name, worker] : world().fleet.workers) {
        if (!name.starts_with(pool)) continue;
        const WorkerRole wanted = lent.contains(name) ? lent[name] : own;
        EXPECT_EQ(worker.role, wanted) << name;
        EXPECT_EQ(world().RoleLabel(name), LabelOf(wanted)) << name;
      }
    }
  }

  std::unique_ptr<FamilyWorld> owner_ = std::make_unique<FamilyWorld>();
  double prefill_load_ = 0, decode_load_ = 0;
};

TEST_F(RebalancerTest, APressedRoleBorrowsFromTheOther) {
  Start();
  SetLoad(3, 0.1);
  Seconds(12);
  EXPECT_EQ(CountRole(WorkerRole::kPrefill), 3);
  ASSERT_THAT(Loans(kDecode), SizeIs(1));
  ExpectConsistent();
  const Json pool = world().Get(kube::kPrefillPool, kPrefill)["status"];
  EXPECT_EQ(pool["borrowed"], 1);
  EXPECT_EQ(pool["summary"]["loans"], "1 borrowed");
  const Json family = world().Get(kube::kKVCachePool, "demo")["status"];
  ASSERT_THAT(family["rebalances"], SizeIs(1));
  EXPECT_EQ(family["rebalances"][0]["kind"], "FlipRole");
  EXPECT_EQ(family["rebalances"][0]["reason"], "PrefillPressure");
  EXPECT_EQ(family["rebalances"][0]["to"], "Prefill");
  EXPECT_THAT(family["summary"]["lastMove"].get<std::string>(),
              HasSubstr("PrefillPressure"));
  EXPECT_TRUE(world().fleet.follows_closely);
}

TEST_F(RebalancerTest, WhatWasLentComesBack) {
  Start();
  SetLoad(3, 0.1);
  Seconds(12);
  ASSERT_THAT(Loans(kDecode), SizeIs(1));
  SetLoad(0.1, 3);
  Seconds(40);
  EXPECT_THAT(Loans(kDecode), IsEmpty());
  EXPECT_GE(CountRole(WorkerRole::kDecode), 2);
  ExpectConsistent();
}

TEST_F(RebalancerTest, RebalancingOffReturnsAllAndForgetsPlans) {
  Start();
  SetLoad(3, 0.1);
  Seconds(12);
  ASSERT_THAT(Loans(kDecode), SizeIs(1));
  world().PatchSpec(kube::kKVCachePool, "demo",
                    {{"rebalancing", {{"policy", "Off"}}}});
  Seconds(8);
  EXPECT_THAT(Loans(kDecode), IsEmpty());
  EXPECT_EQ(CountRole(WorkerRole::kDecode), 2);
  ExpectConsistent();
  EXPECT_FALSE(world().fleet.follows_closely);
  EXPECT_FALSE(world().Get(kube::kDecodePool, kDecode)["status"].contains(
      "plannedReplicas"));
}

TEST_F(RebalancerTest, NobodyIsAskedBeforeItIsWrittenDown) {
  Start();
  SetLoad(3, 0.1);
  Seconds(4);
  world().client.Cut();
  for (int i = 0; i < 10; ++i) {
    world().clock.Advance(std::chrono::seconds(1));
    world().Report();
    world().ReconcileAll();
    ASSERT_TRUE(world().Settle());
  }
  EXPECT_THAT(world().fleet.asked, IsEmpty());
  world().client.Revive();
  Seconds(20);
  EXPECT_THAT(Loans(kDecode), SizeIs(1));
  ExpectConsistent();
}

TEST_F(RebalancerTest, OnlyTheLeaderAsks) {
  Start();
  world().term.reset();
  SetLoad(3, 0.1);
  Seconds(12);
  EXPECT_THAT(world().fleet.asked, IsEmpty());
  EXPECT_THAT(Loans(kDecode), IsEmpty());
}

TEST_F(RebalancerTest, EpochsOfRequestsGrow) {
  Start();
  world().term = 7;
  world().fleet.ignores_requests = true;
  SetLoad(3, 0.1);
  Seconds(25);
  ASSERT_GE(world().fleet.asked.size(), 2u);
  for (size_t i = 1; i < world().fleet.asked.size(); ++i) {
    EXPECT_EQ(world().fleet.asked[i].term, 7u);
    EXPECT_GT(world().fleet.asked[i].sequence,
              world().fleet.asked[i - 1].sequence);
  }
}

TEST_F(RebalancerTest, AControllerThatDiesAnywhereIsTakenUp) {
  for (const bool after : {false, true}) {
    for (uint64_t write = 1; write <= 8; ++write) {
      owner_ = std::make_unique<FamilyWorld>();
      Start();
      SetLoad(3, 0.1);
      Seconds(4);
      world().client.DieAtWrite(write, after);
      for (int i = 0; i < 12; ++i) {
        world().clock.Advance(std::chrono::seconds(1));
        world().Report();
        world().ReconcileAll();
        ASSERT_TRUE(world().Settle());
      }
      world().client.Revive();
      world().Restart();
      world().term = 2;
      Seconds(25);
      EXPECT_THAT(Loans(kDecode), SizeIs(1)) << write << after;
      ExpectConsistent();
    }
  }
}

TEST_F(RebalancerTest, AWorkerThatCannotBeReachedFreezesNobody) {
  Start();
  world().Break("demo-decode-1");
  ASSERT_TRUE(world().Run());
  world().PatchSpec(kube::kDecodePool, kDecode, {{"replicas", 3}});
  world().PatchSpec(kube::kKVCachePool, "demo",
                    {{"rebalancing", {{"acceleratorBudget", 5}}}});
  ASSERT_TRUE(world().Run());
  SetLoad(3, 0.1);
  Seconds(15);
  EXPECT_GE(CountRole(WorkerRole::kPrefill), 3);
}

TEST_F(RebalancerTest, WhoStartedAnewStaysWhereItIsTheLast) {
  Start();
  SetLoad(3, 0.1);
  Seconds(12);
  ASSERT_THAT(Loans(kDecode), SizeIs(1));
  const std::string lent = Loans(kDecode)[0].pod;
  const std::string other =
      lent == "demo-decode-0" ? "demo-decode-1" : "demo-decode-0";
  world().Break(other);
  world().fleet.workers[lent].role = WorkerRole::kDecode;
  Seconds(10);
  EXPECT_EQ(world().fleet.workers[lent].role, WorkerRole::kDecode);
  world().Mend(other);
  Seconds(10);
  EXPECT_EQ(world().fleet.workers[lent].role, WorkerRole::kPrefill);
  ExpectConsistent();
}

// Of a loan that another leader wrote down, the watch has not told yet.
TEST(SettleLoansTest, TheFirstOfARoleIsNotCalledBack) {
  auto pod = std::make_shared<PodView>();
  pod->key.name = "demo-prefill-0";
  pod->ip = "10.0.0.1";
  pod->role = "prefill";
  WorkerPoolObserved observed{.is_prefill = true, .pods = {pod}};
  PoolState pool{.observed = &observed};
  pool.spec.is_prefill = true;
  WorkerSeen worker{.name = pod->key.name,
                    .host = pod->ip,
                    .connected = true,
                    .ready = true,
                    .role = WorkerRole::kPrefill,
                    .target = WorkerRole::kDecode};
  std::map<std::string, WorkerSeen> workers = {{worker.name, worker}};
  EXPECT_THAT(SettleLoans(pool, workers, false).asks, IsEmpty());
  EXPECT_THAT(SettleLoans(pool, workers, true).asks, SizeIs(1));
  worker.name = "demo-decode-0";
  worker.role = WorkerRole::kDecode;
  worker.target.reset();
  workers[worker.name] = worker;
  EXPECT_THAT(SettleLoans(pool, workers, false).asks, SizeIs(1));
}

TEST_F(RebalancerTest, WhenFlipsCannotHelpPoolsGrowWithinTheBudget) {
  Start();
  world().PatchSpec(kube::kKVCachePool, "demo",
                    {{"rebalancing", {{"acceleratorBudget", 6}}}});
  SetLoad(3, 3);
  Seconds(60);
  EXPECT_THAT(world().Names(kube::kPod), SizeIs(6));
  int planned = 0;
  for (const auto& [type, name] : {std::pair{&kube::kPrefillPool, kPrefill},
                                   std::pair{&kube::kDecodePool, kDecode}}) {
    const Json pool = world().Get(*type, name);
    EXPECT_EQ(pool["spec"]["replicas"], 2);
    planned += pool["status"].value("plannedReplicas", 2);
  }
  EXPECT_LE(planned, 6);
}

TEST_F(RebalancerTest, AnIdleBalancedFleetIsNotWrittenTo) {
  Start();
  SetLoad(0.5, 0.5);
  Seconds(40);
  const uint64_t writes = world().client.writes();
  Seconds(120);
  EXPECT_EQ(world().client.writes(), writes);
}

}  // namespace
}  // namespace tidepool::reconcilers
