#include "controller/reconcilers/growth_gate.h"

#include <gtest/gtest.h>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/family_test_util.h"
#include "controller/reconcilers/names.h"

namespace tidepool::reconcilers {
namespace {

constexpr char kPrefill[] = "demo-prefill";
constexpr char kDecode[] = "demo-decode";

// Two prefill and two decode workers in a budget of five.
class GrowthGateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.CreateDemo(2, 2);
    world_.PatchSpec(
        kube::kKVCachePool, "demo",
        {{"rebalancing", {{"acceleratorBudget", 5}, {"policy", "Off"}}}});
    ASSERT_TRUE(world_.Run());
    Look();
  }

  // What the controller knows from now on.
  void Look() {
    observed_ = {.key = {kTestSpace, "demo"}};
    const Json family = world_.Get(kube::kKVCachePool, "demo");
    observed_.resource = Known(family);
    observed_.spec = family["spec"];
    for (const char* name : {kPrefill, kDecode}) {
      const bool is_prefill = name == kPrefill;
      const Json pool =
          world_.Get(is_prefill ? kube::kPrefillPool : kube::kDecodePool, name);
      WorkerPoolObserved seen{.is_prefill = is_prefill};
      seen.resource = Known(pool);
      seen.spec = pool["spec"];
      seen.stateful_set = Set(name);
      for (const std::string& pod : world_.Names(kube::kPod)) {
        auto view = ToPodView(world_.Get(kube::kPod, pod));
        ASSERT_TRUE(view.ok());
        if (view->pool == name)
          seen.pods.push_back(
              std::make_shared<const PodView>(*std::move(view)));
      }
      observed_.pools.push_back(std::move(seen));
    }
  }
  static std::shared_ptr<const CustomResource> Known(const Json& object) {
    auto resource = ToCustomResource(object);
    EXPECT_TRUE(resource.ok());
    return std::make_shared<const CustomResource>(*std::move(resource));
  }
  std::shared_ptr<const Child> Set(const char* pool) {
    auto set = ToWorkload(world_.Get(kube::kStatefulSet, pool));
    EXPECT_TRUE(set.ok());
    return std::make_shared<const Child>(*std::move(set));
  }

  // What the leader of `term` may give the prefill pool, which wants three.
  int32_t Admit(uint64_t term) {
    observed_.pools[0].spec["replicas"] = 3;
    FamilyState family = ReadFamily(observed_, {.version = "0.1.0"});
    EXPECT_EQ(family.pools[0].granted, 3);
    FamilyMemory memory;
    const GrowthGate gate(world_.client, world_.clock,
                          [term] { return std::optional(term); });
    status_ = gate.Admit(family, memory);
    return family.pools[0].granted;
  }

  FamilyWorld world_;
  FamilyObserved observed_;
  Status status_;
};

TEST_F(GrowthGateTest, GrowsWhereThereIsRoom) {
  EXPECT_EQ(Admit(1), 3);
  EXPECT_TRUE(status_.ok());
}

TEST_F(GrowthGateTest, PodsThatNoWatchHasToldOfCount) {
  Json pod = world_.Get(kube::kPod, "demo-decode-1");
  pod["metadata"] = {{"name", "demo-decode-2"},
                     {"namespace", kTestSpace},
                     {"labels", pod["metadata"]["labels"]}};
  ASSERT_TRUE(world_.server.Create(kube::kPod, kTestSpace, pod).ok());
  EXPECT_EQ(Admit(1), 2);
  ASSERT_TRUE(world_.server
                  .Delete(kube::kPod, {kTestSpace, "demo-decode-2"},
                          {.grace_period_seconds = 0})
                  .ok());
  EXPECT_EQ(Admit(1), 3);
}

TEST_F(GrowthGateTest, WaitsForStatefulSetsThatHaveNotFollowedYet) {
  ASSERT_TRUE(world_.server
                  .Patch(kube::kStatefulSet, {kTestSpace, kDecode},
                         kube::PatchType::kMerge, {{"spec", {{"replicas", 1}}}})
                  .ok());
  EXPECT_EQ(Admit(1), 2);
  ASSERT_TRUE(world_.StepWorkloads());
  EXPECT_EQ(Admit(1), 3);
}

TEST_F(GrowthGateTest, WhatADeletedPoolLeftBehindCounts) {
  // Its pods take a while to end.
  world_.Delete(kube::kDecodePool, kDecode);
  ASSERT_FALSE(world_.Get(kube::kPod, "demo-decode-0").is_null());
  ASSERT_TRUE(world_.Get(kube::kStatefulSet, kDecode).is_null());
  observed_.pools.pop_back();
  world_.PatchSpec(kube::kKVCachePool, "demo",
                   {{"rebalancing", {{"acceleratorBudget", 4}}}});
  EXPECT_EQ(Admit(1), 2);
  ASSERT_TRUE(world_.StepWorkloads());
  EXPECT_EQ(Admit(1), 3);
}

TEST_F(GrowthGateTest, StatefulSetsOfPoolsThatNoWatchHasToldOfCount) {
  observed_.pools.pop_back();
  ASSERT_TRUE(world_.server
                  .Patch(kube::kStatefulSet, {kTestSpace, kDecode},
                         kube::PatchType::kMerge, {{"spec", {{"replicas", 3}}}})
                  .ok());
  EXPECT_EQ(Admit(1), 2);
}

// The watch tells of a template that is no more.
TEST_F(GrowthGateTest, LargerPodsWaitWhateverWatchesSay) {
  observed_.pools[1].spec["resources"] = {
      {"limits", {{"nvidia.com/gpu", "2"}}}};
  Json set = world_.Get(kube::kStatefulSet, kDecode);
  set["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {
      {"nvidia.com/gpu", "2"}};
  auto stale = ToWorkload(set);
  ASSERT_TRUE(stale.ok());
  observed_.pools[1].stateful_set =
      std::make_shared<const Child>(*std::move(stale));
  FamilyState family = ReadFamily(observed_, {.version = "0.1.0"});
  family.pools[0].granted = 3;  // so that there is something to ask for
  FamilyMemory memory;
  const GrowthGate gate(world_.client, world_.clock,
                        [] { return std::optional<uint64_t>(1); });
  ASSERT_TRUE(gate.Admit(family, memory).ok());
  EXPECT_TRUE(family.pools[1].waits_for_room);
}

TEST_F(GrowthGateTest, ABudgetThatCannotBeReadIsNoRoom) {
  world_.PatchSpec(kube::kKVCachePool, "demo",
                   {{"rebalancing", {{"acceleratorBudget", "5"}}}});
  EXPECT_EQ(Admit(1), 2);
}

TEST_F(GrowthGateTest, WhatAnEarlierLeaderDecidedIsRefused) {
  ASSERT_EQ(Admit(1), 3);
  const Json decided = {
      {"metadata",
       {{"resourceVersion", std::to_string(Set(kPrefill)->resource_version)}}},
      {"spec", {{"replicas", 3}}}};
  ASSERT_EQ(Admit(2), 3);
  EXPECT_EQ(world_.server
                .Patch(kube::kStatefulSet, {kTestSpace, kPrefill},
                       kube::PatchType::kMerge, decided)
                .status()
                .code(),
            Code::kAborted);
}

TEST_F(GrowthGateTest, NothingGrowsUnseen) {
  world_.client.Cut();
  EXPECT_EQ(Admit(1), 2);
  EXPECT_FALSE(status_.ok());
}

TEST_F(GrowthGateTest, AsksNobodyWhenNothingGrows) {
  FamilyState family = ReadFamily(observed_, {.version = "0.1.0"});
  FamilyMemory memory;
  world_.client.Cut();
  const GrowthGate gate(world_.client, world_.clock,
                        [] { return std::optional<uint64_t>(1); });
  EXPECT_TRUE(gate.Admit(family, memory).ok());
}

}  // namespace
}  // namespace tidepool::reconcilers
