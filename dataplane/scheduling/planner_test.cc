#include "dataplane/scheduling/planner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "dataplane/base/random.h"

namespace tidepool::scheduling {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr TimePoint kStart = TimePoint(std::chrono::hours(1));

// A fleet whose plan is carried out at once and whose load tests set by hand.
class Fleet {
 public:
  explicit Fleet(PlannerConfig config) : config_(config), planner_(config) {}

  void AddPool(std::string name, WorkerRole role, uint32_t replicas,
               uint32_t max = 16, uint32_t min = 1) {
    view_.pools.push_back({.name = name,
                           .role = role,
                           .wished_replicas = replicas,
                           .min_replicas = min,
                           .max_replicas = max});
    for (uint32_t i = 0; i < replicas; ++i) AddInstance(name, role);
  }
  void AddInstance(const std::string& pool, WorkerRole role) {
    view_.instances.push_back({.id = fmt::format("{}-{}", pool, next_id_++),
                               .pool = pool,
                               .planned_role = role,
                               .role = role,
                               .ready = true,
                               .max_requests = 100,
                               .pages_total = 1000,
                               .pages_free = 1000});
  }

  // Of every instance that has the role now.
  void Load(WorkerRole role, uint64_t queued_tokens, uint32_t running) {
    for (PlannerInstance& instance : view_.instances) {
      if (instance.role != role) continue;
      instance.queued_prefill_tokens = queued_tokens;
      instance.prefill_tokens_per_second = 1000;
      instance.running_requests = running;
    }
  }

  Plan Decide() {
    view_.statistics_at = now_;
    return planner_.Decide(view_, now_);
  }
  // Decides every second and carries out what is decided.
  std::vector<Move> Run(Duration duration) {
    std::vector<Move> moves;
    for (const TimePoint end = now_ + duration; now_ < end;
         now_ += seconds(1)) {
      for (const Move& move : Decide().moves) {
        CarryOut(move);
        moves.push_back(move);
      }
    }
    return moves;
  }
  void CarryOut(const Move& move) {
    if (move.flip.has_value()) {
      PlannerInstance& instance = Find(move.flip->instance);
      instance.planned_role = move.flip->to;
      instance.role = move.flip->to;
    } else {
      PlannerPool& pool =
          *std::ranges::find(view_.pools, move.scale->pool, &PlannerPool::name);
      pool.planned_replicas = move.scale->to;
      pool.planned_from = pool.wished_replicas;
      const auto count = static_cast<uint32_t>(std::ranges::count(
          view_.instances, pool.name, &PlannerInstance::pool));
      for (uint32_t i = count; i < move.scale->to; ++i)
        AddInstance(pool.name, pool.role);
    }
  }
  PlannerInstance& Find(const std::string& id) {
    return *std::ranges::find(view_.instances, id, &PlannerInstance::id);
  }

  PlannerConfig config_;
  PlannerCore planner_;
  FleetView view_;
  TimePoint now_ = kStart;
  int next_id_ = 0;
};

PlannerConfig Budget(uint32_t devices) {
  return {.accelerator_budget = devices};
}

TEST(PressureTest, PrefillIsTheTimeToClearTheQueueOverTheSlo) {
  Fleet fleet({.ttft_slo = seconds(4)});
  fleet.AddPool("p", WorkerRole::kPrefill, 2);
  fleet.AddPool("d", WorkerRole::kDecode, 2);
  fleet.Load(WorkerRole::kPrefill, 3000, 0);
  fleet.view_.waiting_prompt_tokens = 2000;
  fleet.view_.waiting_requests = 1;
  // 8,000 tokens at 2,000 a second are 4 s.
  EXPECT_DOUBLE_EQ(Pressure(fleet.view_, fleet.config_).prefill, 1.0);
}

TEST(PressureTest, DecodeIsTheFullestOfSequencesAndPages) {
  Fleet fleet({});
  fleet.AddPool("d", WorkerRole::kDecode, 2);
  fleet.Load(WorkerRole::kDecode, 0, 20);
  EXPECT_DOUBLE_EQ(Pressure(fleet.view_, fleet.config_).decode, 0.2);
  for (PlannerInstance& instance : fleet.view_.instances)
    instance.pages_free = 300;
  EXPECT_DOUBLE_EQ(Pressure(fleet.view_, fleet.config_).decode, 0.7);
}

TEST(PressureTest, WhoWaitsForDecodeDoesNotPressOnPrefill) {
  Fleet fleet({.ttft_slo = seconds(1)});
  fleet.AddPool("p", WorkerRole::kPrefill, 2);
  fleet.AddPool("d", WorkerRole::kDecode, 1);
  fleet.Load(WorkerRole::kDecode, 0, 100);
  fleet.view_.waiting_requests = fleet.view_.waiting_for_decode = 50;
  fleet.view_.ttft = seconds(20);  // most of it spent waiting
  EXPECT_EQ(Pressure(fleet.view_, fleet.config_).prefill, 0);
  EXPECT_DOUBLE_EQ(Pressure(fleet.view_, fleet.config_).decode, 1.5);
  ++fleet.view_.waiting_requests;
  EXPECT_EQ(Pressure(fleet.view_, fleet.config_).prefill, kPressureMax);
}

TEST(PressureTest, ARoleThatIsAskedForAndAbsentIsAtTheMaximum) {
  Fleet fleet({});
  fleet.AddPool("p", WorkerRole::kPrefill, 1);
  fleet.AddPool("d", WorkerRole::kDecode, 1);
  for (PlannerInstance& instance : fleet.view_.instances)
    instance.ready = false;
  EXPECT_EQ(Pressure(fleet.view_, fleet.config_).prefill, 0);
  fleet.view_.waiting_requests = 1;
  EXPECT_EQ(Pressure(fleet.view_, fleet.config_).prefill, kPressureMax);
  EXPECT_EQ(Pressure(fleet.view_, fleet.config_).decode, kPressureMax);
}

TEST(PressureTest, DecodeBearsBothWithoutPrefillPools) {
  Fleet fleet({.ttft_slo = seconds(1)});
  fleet.AddPool("d", WorkerRole::kDecode, 1);
  fleet.Load(WorkerRole::kDecode, 3000, 1);
  const PoolPressure pressure = Pressure(fleet.view_, fleet.config_);
  EXPECT_EQ(pressure.prefill, 0);
  EXPECT_DOUBLE_EQ(pressure.decode, 3.0);
}

TEST(PressureTest, FiguresThatCannotBeTrueHideNoLoad) {
  Fleet fleet({.ttft_slo = seconds(1)});
  fleet.AddPool("p", WorkerRole::kPrefill, 3);
  fleet.AddPool("d", WorkerRole::kDecode, 1);
  fleet.Load(WorkerRole::kPrefill, 1500, 0);
  const auto speed = [&](double value) {
    fleet.view_.instances[0].prefill_tokens_per_second = value;
    return Pressure(fleet.view_, fleet.config_).prefill;
  };
  for (const double absurd : {std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::max(), -1.0}) {
    EXPECT_DOUBLE_EQ(speed(absurd), 1.5) << absurd;
  }
  fleet.view_.instances[0].queued_prefill_tokens =
      std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(speed(1000), kPressureMax);
}

TEST(PlannerTest, RecordsTheWishFirstAndThenMovesNothing) {
  Fleet fleet(Budget(8));
  fleet.AddPool("p", WorkerRole::kPrefill, 2);
  fleet.AddPool("d", WorkerRole::kDecode, 2);
  EXPECT_THAT(fleet.Run(seconds(1)), SizeIs(2));
  EXPECT_THAT(fleet.Run(seconds(600)), IsEmpty());
}

TEST(PlannerTest, AFlipFollowsLastingPressureAndGoesHomeAfterIt) {
  Fleet fleet(Budget(4));
  fleet.AddPool("p", WorkerRole::kPrefill, 2);
  fleet.AddPool("d", WorkerRole::kDecode, 2);
  fleet.Run(seconds(1));
  fleet.Load(WorkerRole::kPrefill, 5000, 0);
  fleet.Load(WorkerRole::kDecode, 0, 10);
  EXPECT_THAT(fleet.Run(seconds(59)), IsEmpty()) << "not before it lasts";
  const std::vector<Move> moves = fleet.Run(seconds(5));
  ASSERT_THAT(moves, SizeIs(1));
  EXPECT_EQ(moves[0].reason, MoveReason::kPrefillPressure);
  EXPECT_EQ(moves[0].flip->to, WorkerRole::kPrefill);
  EXPECT_THAT(moves[0].flip->instance, HasSubstr("d-"));

  EXPECT_THAT(fleet.Run(seconds(300)), IsEmpty())
      << "the last decode instance is never taken";

  fleet.Load(WorkerRole::kPrefill, 0, 0);
  const std::vector<Move> back = fleet.Run(seconds(120));
  ASSERT_THAT(back, SizeIs(1));
  EXPECT_EQ(back[0].reason, MoveReason::kReturnLent);
  EXPECT_EQ(back[0].flip->to, WorkerRole::kDecode);
}

TEST(PlannerTest, ASpikeShorterThanTheStabilizationMovesNothing) {
  Fleet fleet(Budget(4));
  fleet.AddPool("p", WorkerRole::kPrefill, 2);
  fleet.AddPool("d", WorkerRole::kDecode, 2);
  fleet.Run(seconds(1));
  for (int i = 0; i < 10; ++i) {
    fleet.Load(WorkerRole::kPrefill, 9000, 0);
    EXPECT_THAT(fleet.Run(seconds(50)), IsEmpty());
    fleet.Load(WorkerRole::kPrefill, 0, 0);
    EXPECT_THAT(fleet.Run(seconds(2)), IsEmpty());
  }
}

TEST(PlannerTest, GrowsWithinTheBudgetWhenBothArePressed) {
  Fleet fleet(Budget(6));
  fleet.AddPool("p", WorkerRole::kPrefill, 2);
  fleet.AddPool("d", WorkerRole::kDecode, 2);
  fleet.Run(seconds(1));
  uint32_t grown = 0;
  for (int i = 0; i < 1000; ++i) {
    fleet.Load(WorkerRole::kPrefill, 5000, 0);
    fleet.Load(WorkerRole::kDecode, 0, 99);
    for (const Move& move : fleet.Run(seconds(1))) {
      ASSERT_TRUE(move.scale.has_value());
      EXPECT_EQ(move.reason, MoveReason::kBothPressed);
      ++grown;
    }
  }
  EXPECT_EQ(grown, 2u);
  EXPECT_THAT(fleet.Decide().explanation, HasSubstr("no room to grow"));
  // Afterwards it goes back to what was wished.
  fleet.Load(WorkerRole::kPrefill, 0, 0);
  fleet.Load(WorkerRole::kDecode, 0, 0);
  std::erase_if(fleet.view_.instances,
                [](const auto& i) { return i.id > "p-4"; });
  std::vector<MoveReason> reasons;
  for (const Move& move : fleet.Run(seconds(600)))
    reasons.push_back(move.reason);
  EXPECT_THAT(reasons, ElementsAre(MoveReason::kIdle, MoveReason::kIdle));
}

TEST(PlannerTest, APendingReplicaHoldsUpItsOwnPoolOnly) {
  Fleet fleet(Budget(16));
  fleet.AddPool("p", WorkerRole::kPrefill, 2);
  fleet.AddPool("d", WorkerRole::kDecode, 2);
  fleet.AddPool("d2", WorkerRole::kDecode, 2);
  fleet.Run(seconds(1));
  std::vector<std::string> grown;
  for (int i = 0; i < 240; ++i) {
    fleet.Load(WorkerRole::kPrefill, 1500, 0);  // neither hot nor cold
    fleet.Load(WorkerRole::kDecode, 0, 99);
    for (PlannerInstance& instance : fleet.view_.instances) {
      if (instance.id > "d-5" && instance.pool == "d") instance.ready = false;
    }
    for (const Move& move : fleet.Run(seconds(1)))
      grown.push_back(move.scale->pool);
  }
  EXPECT_EQ(std::ranges::count(grown, "d"), 1);
  EXPECT_GE(std::ranges::count(grown, "d2"), 2);
}

TEST(PlannerTest, ACutBudgetShrinksAndWinsOverTheMinimum) {
  Fleet fleet(Budget(8));
  fleet.AddPool("p", WorkerRole::kPrefill, 4, 16, 2);
  fleet.AddPool("d", WorkerRole::kDecode, 4, 16, 2);
  fleet.Run(seconds(1));
  fleet.planner_.SetConfig(Budget(3));
  for (const Move& move : fleet.Run(seconds(1)))
    EXPECT_EQ(move.reason, MoveReason::kBudget);
  EXPECT_EQ(*fleet.view_.pools[0].planned_replicas +
                *fleet.view_.pools[1].planned_replicas,
            3u);
}

TEST(PlannerTest, WhatGrewIsNotCutForAReplicaThatDoesNotFitAnyway) {
  Fleet fleet(Budget(2));
  fleet.AddPool("p", WorkerRole::kPrefill, 1);
  fleet.view_.pools[0].devices_per_replica = 2;
  fleet.AddPool("d", WorkerRole::kDecode, 1);
  fleet.Run(seconds(1));
  EXPECT_EQ(fleet.view_.pools[0].planned_replicas, 0u);
  EXPECT_EQ(fleet.view_.pools[1].planned_replicas, 1u);
  fleet.view_.pools[1].planned_replicas = 2;
  EXPECT_THAT(fleet.Run(seconds(1)), IsEmpty());
}

TEST(PlannerTest, WhatWasCutComesBackWithTheRoomForIt) {
  Fleet fleet(Budget(8));
  fleet.AddPool("p", WorkerRole::kPrefill, 4);
  fleet.AddPool("d", WorkerRole::kDecode, 4);
  fleet.Run(seconds(1));
  fleet.planner_.SetConfig(Budget(5));
  fleet.Run(seconds(1));
  ASSERT_EQ(*fleet.view_.pools[0].planned_replicas +
                *fleet.view_.pools[1].planned_replicas,
            5u);
  fleet.planner_.SetConfig(Budget(7));
  EXPECT_THAT(fleet.Run(seconds(1)),
              testing::Each(Field(&Move::reason, MoveReason::kWishChanged)));
  fleet.view_.pools[1].wished_replicas = 2;
  fleet.Run(seconds(1));
  EXPECT_EQ(fleet.view_.pools[0].planned_replicas, 4u);
  EXPECT_EQ(fleet.view_.pools[1].planned_replicas, 2u);
}

TEST(PlannerTest, WithoutRebalancingReplicasFollowTheWish) {
  Fleet fleet(Budget(8));
  fleet.AddPool("d", WorkerRole::kDecode, 3);
  fleet.Run(seconds(1));
  fleet.view_.pools[0].planned_replicas = 5;  // the planner grew it
  fleet.planner_.SetConfig(
      {.policy = RebalancingPolicy::kOff, .accelerator_budget = 8});
  fleet.Run(seconds(1));
  EXPECT_EQ(fleet.view_.pools[0].planned_replicas, 3u);
}

TEST(PlannerTest, ABudgetBeyondTheRangeOfSumsIsKept) {
  constexpr uint32_t kMany = std::numeric_limits<uint32_t>::max();
  Fleet fleet(Budget(kMany));
  for (const char* name : {"a", "b", "c"}) {
    fleet.view_.pools.push_back({.name = name,
                                 .wished_replicas = kMany,
                                 .max_replicas = kMany,
                                 .devices_per_replica = kMany});
  }
  uint64_t replicas = 0;
  for (const Move& move : fleet.Decide().moves) replicas += move.scale->to;
  EXPECT_EQ(replicas, 1u);
}

TEST(PlannerTest, NobodyIsLentToARoleThatNoPoolHas) {
  Fleet fleet(Budget(8));
  fleet.AddPool("p", WorkerRole::kPrefill, 4);
  fleet.view_.waiting_requests = fleet.view_.waiting_for_decode = 9;
  EXPECT_EQ(fleet.Decide().pressure.decode, kPressureMax);
  for (const Move& move : fleet.Run(seconds(300)))
    EXPECT_FALSE(move.flip.has_value()) << move.explanation;
}

TEST(PlannerTest, AChangedWishStartsThePlanAgain) {
  Fleet fleet(Budget(8));
  fleet.AddPool("d", WorkerRole::kDecode, 2);
  fleet.Run(seconds(1));
  fleet.view_.pools[0].planned_replicas = 5;  // the planner grew it
  fleet.view_.pools[0].wished_replicas = 3;
  const std::vector<Move> moves = fleet.Run(seconds(1));
  ASSERT_THAT(moves, SizeIs(1));
  EXPECT_EQ(moves[0].reason, MoveReason::kWishChanged);
  EXPECT_EQ(moves[0].scale->to, 3u);
}

TEST(PlannerTest, AFlipThatDoesNotEndIsGivenUp) {
  Fleet fleet({.accelerator_budget = 4, .flip_timeout = seconds(30)});
  fleet.AddPool("p", WorkerRole::kPrefill, 2);
  fleet.AddPool("d", WorkerRole::kDecode, 2);
  fleet.Run(seconds(1));
  PlannerInstance& stuck = fleet.view_.instances.back();
  stuck.planned_role = WorkerRole::kPrefill;
  stuck.switching = true;
  const std::vector<Move> moves = fleet.Run(seconds(40));
  ASSERT_THAT(moves, SizeIs(1));
  EXPECT_EQ(moves[0].reason, MoveReason::kFlipTimedOut);
  EXPECT_EQ(moves[0].flip->to, WorkerRole::kDecode);
}

TEST(PlannerTest, AnUnreachableInstanceHoldsUpNoOther) {
  Fleet fleet(Budget(6));
  fleet.AddPool("p", WorkerRole::kPrefill, 3);
  fleet.AddPool("d", WorkerRole::kDecode, 3);
  fleet.Run(seconds(1));
  PlannerInstance& gone = fleet.view_.instances[0];
  gone.planned_role = WorkerRole::kDecode;  // its flip was planned
  gone.role.reset();
  gone.ready = false;
  fleet.Load(WorkerRole::kPrefill, 9000, 0);
  EXPECT_THAT(fleet.Run(seconds(120)), testing::Not(IsEmpty()));
}

TEST(PlannerTest, ARoleThatNoPoolHasAnyMoreIsLeft) {
  Fleet fleet(Budget(6));
  fleet.AddPool("p", WorkerRole::kPrefill, 1);
  fleet.AddPool("d", WorkerRole::kDecode, 3);
  fleet.Run(seconds(1));
  fleet.view_.instances.back().planned_role = WorkerRole::kPrefill;
  fleet.view_.instances.back().role = WorkerRole::kPrefill;
  fleet.view_.pools.erase(fleet.view_.pools.begin());
  fleet.view_.instances.erase(fleet.view_.instances.begin());
  fleet.Load(WorkerRole::kDecode, 0, 99);
  const std::vector<Move> moves = fleet.Run(seconds(30));
  ASSERT_THAT(moves, SizeIs(1));
  EXPECT_EQ(moves[0].reason, MoveReason::kReturnLent);
  EXPECT_EQ(moves[0].flip->to, WorkerRole::kDecode);
}

TEST(PlannerTest, PressureDoesNotLastWhileNobodyLooks) {
  Fleet fleet(Budget(4));
  fleet.AddPool("p", WorkerRole::kPrefill, 2);
  fleet.AddPool("d", WorkerRole::kDecode, 2);
  fleet.Run(seconds(1));
  fleet.Load(WorkerRole::kPrefill, 9000, 0);
  EXPECT_THAT(fleet.Run(seconds(50)), IsEmpty());
  fleet.now_ += seconds(600);
  EXPECT_THAT(fleet.Run(seconds(50)), IsEmpty());
  EXPECT_THAT(fleet.Run(seconds(20)), SizeIs(1));
}

TEST(PlannerTest, OldStatisticsMoveNothing) {
  Fleet fleet(Budget(6));
  fleet.AddPool("p", WorkerRole::kPrefill, 3);
  fleet.AddPool("d", WorkerRole::kDecode, 3);
  fleet.Run(seconds(1));
  fleet.Load(WorkerRole::kPrefill, 9000, 0);
  fleet.view_.statistics_at = fleet.now_;
  for (int i = 0; i < 300; ++i) {
    fleet.now_ += seconds(1);
    const Plan plan = fleet.planner_.Decide(fleet.view_, fleet.now_);
    EXPECT_THAT(plan.moves, IsEmpty());
  }
}

TEST(GrantReplicasTest, GrowthWaitsUntilTheShrunkPodsAreGone) {
  std::vector<ReplicaGrant> pools = {
      {.pool = "p", .planned = 2, .observed = 4, .devices_per_replica = 2},
      {.pool = "d", .planned = 6, .observed = 4, .devices_per_replica = 2}};
  EXPECT_THAT(GrantReplicas(pools, 16), ElementsAre(2, 4));
  pools[0].observed = 3;
  EXPECT_THAT(GrantReplicas(pools, 16), ElementsAre(2, 5));
  pools[0].observed = 2;
  pools[1].observed = 5;
  EXPECT_THAT(GrantReplicas(pools, 16), ElementsAre(2, 6));
  EXPECT_THAT(GrantReplicas(pools, std::nullopt), ElementsAre(2, 6));
}

// Whatever was planned before, the plan is there after one turn.
TEST(PlannerTest, PlansFromWishesSettleAtOnce) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const auto below = [&](uint64_t n) {
      return static_cast<uint32_t>(random.Below(n));
    };
    Fleet fleet(Budget(1 + below(24)));
    const uint32_t pools = 1 + below(4);
    for (uint32_t i = 0; i < pools; ++i) {
      const uint32_t max = 1 + below(10);
      fleet.AddPool(fmt::format("pool{}", i), WorkerRole::kDecode,
                    below(max + 3), max, below(max + 1));
      PlannerPool& pool = fleet.view_.pools.back();
      pool.devices_per_replica = below(4);
      if (below(2)) {
        pool.planned_replicas = below(max + 3);
        pool.planned_from = below(2) ? pool.wished_replicas : below(12);
      }
    }
    for (const Move& move : fleet.Decide().moves) fleet.CarryOut(move);
    EXPECT_THAT(fleet.Decide().moves, IsEmpty()) << "seed " << seed;
  }
}

// Random fleets, random answers, moves that are carried out or lost: whatever
// the view, plans stay within budget and bounds, and a role keeps an instance.
TEST(PlannerTest, InvariantsHoldForRandomFleets) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const auto below = [&](uint64_t n) {
      return static_cast<uint32_t>(random.Below(n));
    };
    const uint32_t budget = 1 + below(24);
    Fleet fleet({.accelerator_budget = budget,
                 .stabilization = seconds(below(10)),
                 .cooldown = seconds(below(5)),
                 .flip_timeout = seconds(1 + below(20))});
    const uint32_t pools = 1 + below(4);
    for (uint32_t i = 0; i < pools; ++i) {
      const uint32_t max = 1 + below(10);
      fleet.AddPool(fmt::format("pool{}", i),
                    below(2) ? WorkerRole::kPrefill : WorkerRole::kDecode,
                    below(max + 3), max, below(max + 1));
      fleet.view_.pools.back().devices_per_replica = below(4);
    }
    for (int step = 0; step < 200; ++step) {
      fleet.now_ += seconds(1);
      for (PlannerInstance& instance : fleet.view_.instances) {
        instance.queued_prefill_tokens = below(20000);
        instance.prefill_tokens_per_second = below(3) * 500;
        instance.running_requests = below(101);
        instance.ready = below(10) > 0;
        if (below(20) == 0) instance.role.reset();
        if (!instance.role && below(3) == 0)
          instance.role = instance.planned_role;
      }
      if (below(50) == 0)
        fleet.view_.pools[below(pools)].wished_replicas = below(12);
      const Plan plan = fleet.Decide();
      for (const Move& move : plan.moves) {
        ASSERT_NE(move.flip.has_value(), move.scale.has_value());
        if (move.flip.has_value() && move.reason != MoveReason::kFlipTimedOut) {
          const WorkerRole from = move.flip->to == WorkerRole::kPrefill
                                      ? WorkerRole::kDecode
                                      : WorkerRole::kPrefill;
          ASSERT_GE(std::ranges::count_if(fleet.view_.instances,
                                          [&](const auto& instance) {
                                            return instance.ready &&
                                                   instance.role == from;
                                          }),
                    2)
              << "seed " << seed << " step " << step;
        }
        if (below(4) == 0) break;  // a write failed: the rest waits
        fleet.CarryOut(move);
      }
      uint64_t devices = 0;
      bool all_written = true;
      for (const PlannerPool& pool : fleet.view_.pools) {
        const uint32_t planned = pool.planned_replicas.value_or(0);
        devices += uint64_t{planned} * pool.devices_per_replica;
        EXPECT_LE(planned, std::max(pool.min_replicas, pool.max_replicas));
        all_written &= pool.planned_from == pool.wished_replicas;
      }
      if (all_written) {
        ASSERT_LE(devices, budget) << "seed " << seed << " step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::scheduling
