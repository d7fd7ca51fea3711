#include "controller/reconcilers/family_reconciler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/family_test_util.h"
#include "controller/reconcilers/names.h"

namespace tidepool::reconcilers {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class FamilyReconcilerTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const Status& error : world_.errors) ADD_FAILURE() << error.ToString();
  }
  void RunDemo(int prefill, int decode) {
    world_.CreateDemo(prefill, decode);
    ASSERT_TRUE(world_.Run());
  }
  std::string Reason(const kube::ResourceType& type, const std::string& name,
                     const std::string& condition) {
    const Json found = world_.Condition(type, name, condition);
    return found.is_null() ? "absent"
                           : found["status"].get<std::string>() + " " +
                                 found["reason"].get<std::string>();
  }
  std::string Image(const std::string& pod) {
    return world_.Get(kube::kPod, pod)["spec"]["containers"][0]["image"];
  }

  int DevicesHeld() {
    int held = 0;
    for (const std::string& name : world_.Names(kube::kPod)) {
      const Json pod = world_.Get(kube::kPod, name);
      const Json devices = pod.value(
          "/spec/containers/0/resources/limits/nvidia.com~1gpu"_json_pointer,
          Json("1"));
      held += std::stoi(devices.get<std::string>());
    }
    return held;
  }
  // Until nothing changes, with so many devices at most at any moment.
  void StepWithin(int budget) {
    int rounds = 0;
    do {
      ASSERT_TRUE(world_.Settle());
      EXPECT_LE(DevicesHeld(), budget);
      ASSERT_LT(++rounds, 100);
    } while (world_.StepWorkloads());
  }

  FamilyWorld world_;
};

const kube::ResourceType* const kMade[] = {
    &kube::kDeployment,     &kube::kStatefulSet,         &kube::kService,
    &kube::kServiceAccount, &kube::kPodDisruptionBudget, &kube::kNetworkPolicy};

TEST_F(FamilyReconcilerTest, MakesTheObjectsOfAFleet) {
  RunDemo(2, 3);
  EXPECT_THAT(world_.Names(kube::kDeployment), ElementsAre("demo-conductor"));
  EXPECT_THAT(world_.Names(kube::kStatefulSet),
              UnorderedElementsAre("demo-prefill", "demo-decode"));
  EXPECT_THAT(
      world_.Names(kube::kService),
      UnorderedElementsAre("demo-conductor", "demo-prefill", "demo-decode"));
  EXPECT_THAT(
      world_.Names(kube::kPodDisruptionBudget),
      UnorderedElementsAre("demo-conductor", "demo-prefill", "demo-decode"));
  EXPECT_THAT(world_.Names(kube::kServiceAccount),
              UnorderedElementsAre("demo-conductor", "demo-worker"));
  EXPECT_THAT(world_.Names(kube::kNetworkPolicy),
              UnorderedElementsAre("demo-conductor", "demo-worker"));
  EXPECT_THAT(world_.Names(kube::kSecret),
              UnorderedElementsAre("demo-api-key", "demo-tls-ca",
                                   "demo-conductor-tls", "demo-worker-tls"));
  EXPECT_EQ(world_.Names(kube::kPod).size(), 5u);
}

TEST_F(FamilyReconcilerTest, SaysWhenTheFleetServes) {
  world_.CreateDemo(1, 2);
  ASSERT_TRUE(world_.Settle());
  EXPECT_EQ(Reason(kube::kKVCachePool, "demo", "Ready"),
            "False NoReadyConductor");
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(Reason(kube::kKVCachePool, "demo", "Ready"), "True Serving");
  EXPECT_EQ(Reason(kube::kKVCachePool, "demo", "Progressing"),
            "False UpToDate");
  EXPECT_EQ(Reason(kube::kDecodePool, "demo-decode", "Ready"), "True AllReady");
  const Json status = world_.Get(kube::kKVCachePool, "demo")["status"];
  EXPECT_EQ(status["version"], "0.1.0");
  EXPECT_EQ(status["summary"]["decode"], "2/2");
  EXPECT_EQ(status["endpoint"], "http://demo-conductor.models.svc:80");
  EXPECT_EQ(status["apiKeySecretName"], "demo-api-key");
  const Json pool = world_.Get(kube::kDecodePool, "demo-decode")["status"];
  EXPECT_EQ(pool["replicas"], 2);
  EXPECT_EQ(pool["readyReplicas"], 2);
  EXPECT_THAT(pool["selector"].get<std::string>(),
              HasSubstr("tidepool.dev/pool=demo-decode"));
}

TEST_F(FamilyReconcilerTest, WritesNothingWhenNothingChanges) {
  RunDemo(1, 1);
  const uint64_t writes = world_.client.writes();
  for (int minute = 0; minute < 10; ++minute) {
    world_.clock.Advance(std::chrono::minutes(1));
    world_.ReconcileAll();
    ASSERT_TRUE(world_.Settle());
  }
  EXPECT_EQ(world_.client.writes(), writes);
}

TEST_F(FamilyReconcilerTest, ARestartChangesNothing) {
  RunDemo(1, 1);
  const uint64_t version = world_.server.version();
  world_.Restart();
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.server.version(), version);
}

TEST_F(FamilyReconcilerTest, WhatIsDeletedComesBack) {
  RunDemo(1, 1);
  for (const kube::ResourceType* type : kMade) {
    const std::vector<std::string> before = world_.Names(*type);
    for (const std::string& name : before) {
      world_.clock.Advance(std::chrono::minutes(1));
      world_.Delete(*type, name);
      ASSERT_TRUE(world_.Run());
      EXPECT_EQ(world_.Names(*type), before) << type->kind << " " << name;
    }
  }
}

TEST_F(FamilyReconcilerTest, WhatDriftsIsRepaired) {
  RunDemo(1, 1);
  for (const kube::ResourceType* type : kMade) {
    for (const std::string& name : world_.Names(*type)) {
      const Json before = world_.Get(*type, name);
      Json patch = {
          {"metadata",
           {{"labels", {{"app.kubernetes.io/instance", "another"}}}}}};
      if (*type == kube::kStatefulSet || *type == kube::kDeployment)
        patch["spec"]["replicas"] = 7;
      if (*type == kube::kService) patch["spec"]["selector"]["x"] = "y";
      ASSERT_TRUE(
          world_.server
              .Patch(*type, {kTestSpace, name}, kube::PatchType::kMerge, patch)
              .ok());
      ASSERT_TRUE(world_.Run());
      const Json after = world_.Get(*type, name);
      EXPECT_EQ(after["metadata"]["labels"], before["metadata"]["labels"])
          << type->kind << " " << name;
      if (patch.contains("spec") && patch["spec"].contains("replicas")) {
        EXPECT_EQ(after["spec"]["replicas"], before["spec"]["replicas"]);
      }
    }
  }
}

TEST_F(FamilyReconcilerTest, AnApiKeyIsNeverWrittenAgain) {
  RunDemo(1, 1);
  const Json before = world_.Get(kube::kSecret, "demo-api-key");
  EXPECT_GE(before["stringData"]["api-key"].get<std::string>().size(), 64u);
  world_.Restart();
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Get(kube::kSecret, "demo-api-key"), before);
}

TEST_F(FamilyReconcilerTest, AMissedApiKeyIsMadeAgain) {
  RunDemo(1, 1);
  world_.Delete(kube::kSecret, "demo-api-key");
  world_.Break("demo-conductor");
  world_.clock.Advance(std::chrono::minutes(1));
  ASSERT_TRUE(world_.Run());
  EXPECT_THAT(world_.Names(kube::kSecret), Contains("demo-api-key"));
}

// As the one of a fleet of the same name that was deleted a moment ago.
TEST_F(FamilyReconcilerTest, AnApiKeyThatGoesLateIsMissedSoon) {
  world_.Create(kube::kSecret, "demo-api-key", Json::object());
  world_.Create(kube::kKVCachePool, "demo",
                {{"model", {{"uri", "demo"}}}, {"tls", {{"policy", "Off"}}}});
  world_.Create(kube::kDecodePool, "demo-decode",
                {{"kvCachePoolRef", {{"name", "demo"}}}});
  world_.Break("demo-conductor");
  ASSERT_TRUE(world_.Run());
  world_.Delete(kube::kSecret, "demo-api-key");
  ASSERT_TRUE(world_.requeue.has_value());
  EXPECT_LE(*world_.requeue, std::chrono::seconds(30));
  world_.clock.Advance(*world_.requeue);
  world_.ReconcileAll();
  ASSERT_TRUE(world_.Run());
  EXPECT_THAT(world_.Names(kube::kSecret), ElementsAre("demo-api-key"));
}

// Conductors may miss something else, for long.
TEST_F(FamilyReconcilerTest, AnApiKeyThatIsThereIsTriedEverLessOften) {
  RunDemo(0, 1);
  world_.Break("demo-conductor");
  ASSERT_TRUE(world_.Run());
  const uint64_t writes = world_.client.writes();
  for (int i = 0; i < 120; ++i) {
    world_.clock.Advance(std::chrono::seconds(30));
    world_.ReconcileAll();
    ASSERT_TRUE(world_.Settle());
  }
  EXPECT_LE(world_.client.writes() - writes, 12u);
}

TEST_F(FamilyReconcilerTest, AMissedCertificateIsMadeAgain) {
  RunDemo(1, 1);
  world_.Delete(kube::kSecret, "demo-worker-tls");
  world_.Break("demo-decode-0");
  world_.clock.Advance(std::chrono::minutes(1));
  ASSERT_TRUE(world_.Run());
  EXPECT_THAT(world_.Names(kube::kSecret), Contains("demo-worker-tls"));
}

TEST_F(FamilyReconcilerTest, RenewedCertificatesRestartNobody) {
  RunDemo(1, 1);
  const Json before = world_.Get(kube::kSecret, "demo-worker-tls");
  const Json pod = world_.Get(kube::kPod, "demo-decode-0");
  world_.clock.Advance(std::chrono::hours(24 * 61));
  world_.ReconcileAll();
  ASSERT_TRUE(world_.Run());
  EXPECT_NE(world_.Get(kube::kSecret, "demo-worker-tls")["data"],
            before["data"]);
  EXPECT_EQ(world_.Get(kube::kPod, "demo-decode-0"), pod);
}

TEST_F(FamilyReconcilerTest, AFleetWithoutTlsHasNoCertificates) {
  world_.Create(kube::kKVCachePool, "demo",
                {{"model", {{"uri", "demo"}}}, {"tls", {{"policy", "Off"}}}});
  world_.Create(kube::kDecodePool, "demo-decode",
                {{"kvCachePoolRef", {{"name", "demo"}}}});
  ASSERT_TRUE(world_.Run());
  EXPECT_THAT(world_.Names(kube::kSecret), ElementsAre("demo-api-key"));
  EXPECT_THAT(world_.Get(kube::kPod, "demo-decode-0").dump(),
              Not(HasSubstr("--tls-")));
}

TEST_F(FamilyReconcilerTest, ACertificateOfOthersIsLeftAloneAndSaid) {
  world_.Create(kube::kSecret, "demo-worker-tls", Json::object());
  const Json before = world_.Get(kube::kSecret, "demo-worker-tls");
  world_.CreateDemo(0, 1);
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Get(kube::kSecret, "demo-worker-tls"), before);
  EXPECT_EQ(Reason(kube::kKVCachePool, "demo", "Degraded"), "True ApplyFailed");
  EXPECT_THAT(
      world_.Condition(kube::kKVCachePool, "demo", "Degraded")["message"]
          .get<std::string>(),
      HasSubstr("demo-worker-tls belongs to another object"));
  world_.errors.clear();
}

TEST_F(FamilyReconcilerTest, ABadFieldIsNamedAndNothingElseHappens) {
  RunDemo(1, 1);
  const Json before = world_.Get(kube::kDeployment, "demo-conductor");
  world_.PatchSpec(kube::kKVCachePool, "demo",
                   {{"conductor", {{"replicas", "many"}}}});
  ASSERT_TRUE(world_.Run());
  const Json degraded =
      world_.Condition(kube::kKVCachePool, "demo", "Degraded");
  EXPECT_EQ(degraded["reason"], "InvalidSpec");
  EXPECT_THAT(degraded["message"].get<std::string>(),
              HasSubstr("spec.conductor.replicas: \"many\" is not an integer"));
  EXPECT_EQ(world_.Get(kube::kDeployment, "demo-conductor"), before);
  EXPECT_EQ(Reason(kube::kKVCachePool, "demo", "Ready"), "True Serving");
  world_.PatchSpec(kube::kKVCachePool, "demo",
                   {{"conductor", {{"replicas", 2}}}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(Reason(kube::kKVCachePool, "demo", "Degraded"), "False AsExpected");
  EXPECT_EQ(world_.Get(kube::kDeployment, "demo-conductor")["spec"]["replicas"],
            2);
}

TEST_F(FamilyReconcilerTest, WhyPodsAreNotReadyIsSaid) {
  RunDemo(0, 2);
  const Json scheduled = {{"type", "PodScheduled"},
                          {"status", "False"},
                          {"reason", "Unschedulable"},
                          {"message", "no node has room"}};
  ASSERT_TRUE(
      world_.server
          .Patch(kube::kPod, {kTestSpace, "demo-decode-1"},
                 kube::PatchType::kMerge,
                 {{"status", {{"conditions", Json::array({scheduled})}}}},
                 "status")
          .ok());
  ASSERT_TRUE(world_.Settle());
  const Json ready =
      world_.Condition(kube::kDecodePool, "demo-decode", "Ready");
  EXPECT_EQ(ready["reason"], "Unschedulable");
  EXPECT_EQ(ready["message"],
            "1 of 2 ready: demo-decode-1 Unschedulable: no node has room");
  EXPECT_EQ(Reason(kube::kDecodePool, "demo-decode", "Degraded"),
            "True PodsFailing");
}

TEST_F(FamilyReconcilerTest, MemoryThatTheEngineDoesNotTakeIsRefused) {
  world_.Create(kube::kKVCachePool, "demo",
                {{"model", {{"uri", "demo"}}},
                 {"engine",
                  {{"type", "Emulated"},
                   {"perfModelConfigMapRef", {{"name", "perf"}}}}}});
  world_.Create(
      kube::kDecodePool, "demo-decode",
      {{"kvCachePoolRef", {{"name", "demo"}}}, {"kvCacheMemory", "1Gi"}});
  ASSERT_TRUE(world_.Run());
  EXPECT_THAT(
      world_.Condition(kube::kDecodePool, "demo-decode", "Degraded")["message"]
          .get<std::string>(),
      HasSubstr("spec.kvCacheMemory: is not for an Emulated engine"));
  EXPECT_EQ(Reason(kube::kKVCachePool, "demo", "Degraded"), "True InvalidPool");
  EXPECT_EQ(Reason(kube::kDecodePool, "demo-decode", "Ready"),
            "False InvalidSpec");
  EXPECT_THAT(world_.Names(kube::kStatefulSet), IsEmpty());
}

TEST_F(FamilyReconcilerTest, MemoryIsExplained) {
  RunDemo(0, 1);
  const auto explained = [this] {
    return world_
        .Condition(kube::kDecodePool, "demo-decode", "Progressing")["message"]
        .get<std::string>();
  };
  EXPECT_THAT(explained(), HasSubstr("weights 11 MiB + KV "));
  world_.PatchSpec(kube::kKVCachePool, "demo",
                   {{"model", {{"uri", "pvc://models/llama"}}}});
  ASSERT_TRUE(world_.Run());
  EXPECT_THAT(explained(), HasSubstr("spec.resources.limits.memory states"));
}

TEST_F(FamilyReconcilerTest, APoolWithoutItsKVCachePoolWaits) {
  world_.Create(kube::kDecodePool, "lonely",
                {{"kvCachePoolRef", {{"name", "nobody"}}}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(Reason(kube::kDecodePool, "lonely", "Degraded"),
            "True KVCachePoolNotFound");
  EXPECT_THAT(world_.Names(kube::kStatefulSet), IsEmpty());
}

TEST_F(FamilyReconcilerTest, WhatBelongsToOthersIsLeftAlone) {
  world_.Create(kube::kService, "demo-decode", {{"clusterIP", "None"}});
  ASSERT_TRUE(
      world_.server
          .Patch(
              kube::kService, {kTestSpace, "demo-decode"},
              kube::PatchType::kMerge,
              {{"metadata",
                {{"labels",
                  {{std::string(kManagedByLabel), std::string(kManagedBy)}}}}}})
          .ok());
  const Json before = world_.Get(kube::kService, "demo-decode");
  world_.CreateDemo(0, 1);
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Get(kube::kService, "demo-decode"), before);
  const Json degraded =
      world_.Condition(kube::kDecodePool, "demo-decode", "Degraded");
  EXPECT_THAT(degraded["message"].get<std::string>(),
              HasSubstr("belongs to another object"));
  world_.errors.clear();
}

TEST_F(FamilyReconcilerTest, ScalingFollowsTheWish) {
  RunDemo(1, 1);
  world_.PatchSpec(kube::kDecodePool, "demo-decode", {{"replicas", 4}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Names(kube::kPod).size(), 5u);
  world_.PatchSpec(kube::kDecodePool, "demo-decode", {{"replicas", 0}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Names(kube::kPod).size(), 1u);
  EXPECT_EQ(Reason(kube::kDecodePool, "demo-decode", "Ready"),
            "True ScaledToZero");
}

TEST_F(FamilyReconcilerTest, AFleetLargerThanItsBudgetWaits) {
  RunDemo(2, 2);
  world_.PatchSpec(
      kube::kKVCachePool, "demo",
      {{"rebalancing", {{"policy", "Off"}, {"acceleratorBudget", 5}}}});
  world_.PatchSpec(kube::kDecodePool, "demo-decode", {{"replicas", 9}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Names(kube::kPod).size(), 5u);
  EXPECT_EQ(Reason(kube::kDecodePool, "demo-decode", "Progressing"),
            "True WaitingForBudget");
  world_.PatchSpec(kube::kPrefillPool, "demo-prefill", {{"replicas", 1}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Get(kube::kStatefulSet, "demo-decode")["spec"]["replicas"],
            4);
}

TEST_F(FamilyReconcilerTest, ABudgetThatCannotBeReadLetsNothingGrow) {
  RunDemo(2, 2);
  world_.PatchSpec(
      kube::kKVCachePool, "demo",
      {{"rebalancing", {{"policy", "Off"}, {"acceleratorBudget", "4"}}}});
  world_.PatchSpec(kube::kDecodePool, "demo-decode", {{"replicas", 9}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Names(kube::kPod).size(), 4u);
  world_.PatchSpec(kube::kKVCachePool, "demo",
                   {{"rebalancing", {{"acceleratorBudget", 6}}}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Names(kube::kPod).size(), 6u);
}

TEST_F(FamilyReconcilerTest, LargerPodsWaitForRoom) {
  RunDemo(2, 2);
  world_.PatchSpec(
      kube::kKVCachePool, "demo",
      {{"rebalancing", {{"policy", "Off"}, {"acceleratorBudget", 4}}}});
  world_.PatchSpec(kube::kDecodePool, "demo-decode",
                   {{"resources", {{"limits", {{"nvidia.com/gpu", "2"}}}}}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(Reason(kube::kDecodePool, "demo-decode", "Progressing"),
            "True WaitingForBudget");
  EXPECT_EQ(DevicesHeld(), 4);
  world_.PatchSpec(kube::kPrefillPool, "demo-prefill",
                   {{"minReplicas", 0}, {"replicas", 0}});
  StepWithin(4);
  EXPECT_EQ(DevicesHeld(), 4);
  EXPECT_EQ(world_.Names(kube::kPod).size(), 2u);
}

TEST_F(FamilyReconcilerTest, SmallerPodsMakeRoomOnceTheyAreThere) {
  RunDemo(1, 2);
  world_.PatchSpec(kube::kDecodePool, "demo-decode",
                   {{"resources", {{"limits", {{"nvidia.com/gpu", "2"}}}}}});
  ASSERT_TRUE(world_.Run());
  world_.PatchSpec(
      kube::kKVCachePool, "demo",
      {{"rebalancing", {{"policy", "Off"}, {"acceleratorBudget", 5}}}});
  world_.PatchSpec(kube::kDecodePool, "demo-decode",
                   {{"resources", {{"limits", {{"nvidia.com/gpu", "1"}}}}}});
  world_.PatchSpec(kube::kPrefillPool, "demo-prefill", {{"replicas", 3}});
  StepWithin(5);
  EXPECT_EQ(DevicesHeld(), 5);
  EXPECT_EQ(world_.Names(kube::kPod).size(), 5u);
}

TEST_F(FamilyReconcilerTest, ANewVersionRollsOnePodAtATime) {
  RunDemo(1, 3);
  world_.PatchSpec(kube::kKVCachePool, "demo", {{"version", "0.2.0"}});
  int rounds = 0;
  do {
    ASSERT_TRUE(world_.Settle());
    int ready = 0;
    for (const char* pod :
         {"demo-decode-0", "demo-decode-1", "demo-decode-2"}) {
      const Json object = world_.Get(kube::kPod, pod);
      if (!object.is_null() &&
          !object["metadata"].contains("deletionTimestamp"))
        ++ready;
    }
    EXPECT_GE(ready, 2);
    ASSERT_LT(++rounds, 100);
  } while (world_.StepWorkloads());
  for (const std::string& pod : world_.Names(kube::kPod))
    EXPECT_EQ(Image(pod), "localhost/tidepool:0.2.0") << pod;
  EXPECT_EQ(Reason(kube::kDecodePool, "demo-decode", "Progressing"),
            "False UpToDate");
}

// Replicas that wait for room must not keep old pods from being replaced: those
// may be what takes it.
TEST_F(FamilyReconcilerTest, APoolThatWaitsForBudgetRollsOut) {
  RunDemo(2, 2);
  world_.PatchSpec(
      kube::kKVCachePool, "demo",
      {{"version", "0.2.0"},
       {"rebalancing", {{"policy", "Off"}, {"acceleratorBudget", 5}}}});
  world_.PatchSpec(kube::kDecodePool, "demo-decode", {{"replicas", 9}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Names(kube::kPod).size(), 5u);
  for (const std::string& pod : world_.Names(kube::kPod))
    EXPECT_EQ(Image(pod), "localhost/tidepool:0.2.0") << pod;
}

TEST_F(FamilyReconcilerTest, ARolloutThatFailsStopsAndIsReverted) {
  RunDemo(0, 3);
  world_.Break("demo-decode-2");  // the first to be replaced
  world_.PatchSpec(kube::kKVCachePool, "demo", {{"version", "0.2.0"}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(Image("demo-decode-2"), "localhost/tidepool:0.2.0");
  EXPECT_EQ(Image("demo-decode-1"), "localhost/tidepool:0.1.0");
  EXPECT_EQ(Image("demo-decode-0"), "localhost/tidepool:0.1.0");
  const std::string untouched =
      world_.Get(kube::kPod, "demo-decode-0")["metadata"]["uid"];
  world_.PatchSpec(kube::kKVCachePool, "demo", {{"version", "0.1.0"}});
  world_.Mend("demo-decode-2");
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(Image("demo-decode-2"), "localhost/tidepool:0.1.0");
  EXPECT_EQ(world_.Get(kube::kPod, "demo-decode-0")["metadata"]["uid"],
            untouched);
}

TEST_F(FamilyReconcilerTest, APausedRolloutStillScales) {
  RunDemo(0, 2);
  world_.PatchSpec(kube::kDecodePool, "demo-decode",
                   {{"rollout", {{"policy", "Paused"}}}});
  world_.PatchSpec(kube::kKVCachePool, "demo", {{"version", "0.2.0"}});
  world_.PatchSpec(kube::kDecodePool, "demo-decode", {{"replicas", 3}});
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(world_.Names(kube::kPod).size(), 3u);
  for (const std::string& pod : world_.Names(kube::kPod))
    EXPECT_EQ(Image(pod), "localhost/tidepool:0.1.0") << pod;
  EXPECT_EQ(Reason(kube::kDecodePool, "demo-decode", "Progressing"),
            "False Paused");
  world_.PatchSpec(kube::kDecodePool, "demo-decode",
                   {{"rollout", {{"policy", "Progress"}}}});
  ASSERT_TRUE(world_.Run());
  for (const std::string& pod : world_.Names(kube::kPod))
    EXPECT_EQ(Image(pod), "localhost/tidepool:0.2.0") << pod;
}

TEST_F(FamilyReconcilerTest, ASurgeGoesAwayAgain) {
  RunDemo(0, 2);
  world_.PatchSpec(kube::kDecodePool, "demo-decode",
                   {{"rollout", {{"maxUnavailable", 0}, {"maxSurge", 1}}}});
  world_.PatchSpec(kube::kKVCachePool, "demo", {{"version", "0.2.0"}});
  size_t most = 0;
  int rounds = 0;
  do {
    ASSERT_TRUE(world_.Settle());
    most = std::max(most, world_.Names(kube::kPod).size());
    ASSERT_LT(++rounds, 100);
  } while (world_.StepWorkloads());
  EXPECT_EQ(most, 3u);
  EXPECT_THAT(world_.Names(kube::kPod),
              UnorderedElementsAre("demo-decode-0", "demo-decode-1"));
  for (const std::string& pod : world_.Names(kube::kPod))
    EXPECT_EQ(Image(pod), "localhost/tidepool:0.2.0") << pod;
}

TEST_F(FamilyReconcilerTest, AControllerUpgradeChangesNoPod) {
  RunDemo(1, 1);
  // The version was pinned when the pool was first seen; another default must
  // not matter. Removing it from the spec does not either.
  world_.PatchSpec(kube::kKVCachePool, "demo", {{"version", nullptr}});
  const uint64_t generation =
      world_.Get(kube::kStatefulSet, "demo-decode")["metadata"]["generation"];
  world_.Restart();
  ASSERT_TRUE(world_.Run());
  EXPECT_EQ(
      world_.Get(kube::kStatefulSet, "demo-decode")["metadata"]["generation"],
      generation);
}

TEST_F(FamilyReconcilerTest, DisabledNetworkPoliciesGo) {
  RunDemo(1, 1);
  world_.PatchSpec(kube::kKVCachePool, "demo",
                   {{"networkPolicy", {{"policy", "Disabled"}}}});
  ASSERT_TRUE(world_.Run());
  EXPECT_THAT(world_.Names(kube::kNetworkPolicy), IsEmpty());
}

TEST_F(FamilyReconcilerTest, ADeletedFleetLeavesNothing) {
  RunDemo(1, 1);
  world_.Delete(kube::kDecodePool, "demo-decode");
  world_.Delete(kube::kPrefillPool, "demo-prefill");
  world_.Delete(kube::kKVCachePool, "demo");
  ASSERT_TRUE(world_.Run());
  for (const kube::ResourceType* type : kMade)
    EXPECT_THAT(world_.Names(*type), IsEmpty()) << type->kind;
  EXPECT_THAT(world_.Names(kube::kPod), IsEmpty());
}

}  // namespace
}  // namespace tidepool::reconcilers
