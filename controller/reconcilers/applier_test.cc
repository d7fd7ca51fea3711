#include "controller/reconcilers/applier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/kube/resource_types.h"
#include "tests/fakes/api_server.h"

namespace tidepool::reconcilers {
namespace {

class ApplierTest : public ::testing::Test {
 protected:
  ManualClock clock_;
  fakes::ApiServer server_{{}, clock_};
  ClusterCache cache_{{}};
  kube::EventRecorder events_{{}, server_, clock_, [] { return 0.0; }};
  Applier applier_{server_, cache_, events_, clock_, [] { return 0.0; }};
  FamilyMemory memory_;
  const CustomResource resource_{.key = {"models", "demo"}, .uid = "1"};
  const Json status_;
  const PlanOwner owner_{&kube::kKVCachePool, &resource_, &status_};
};

// Whoever deletes a fleet is no cause for warnings in the controller's log.
TEST_F(ApplierTest, WhatIsGoneHasChanged) {
  EXPECT_EQ(
      applier_.WriteStatus(owner_, {{"version", "1"}}, false, memory_).code(),
      Code::kAborted);
  Plan plan{.patches = {{.type = &kube::kStatefulSet,
                         .key = {"models", "demo-decode"},
                         .patch = {{"spec", {{"replicas", 2}}}}}},
            .conditions = {{"Degraded", false, "AsExpected", ""}}};
  EXPECT_EQ(applier_.Carry(owner_, plan, memory_).code(), Code::kAborted);
  EXPECT_FALSE(plan.FindCondition("Degraded")->is_true);
}

}  // namespace
}  // namespace tidepool::reconcilers
