#include "controller/reconcilers/observed.h"

#include <gtest/gtest.h>

namespace tidepool::reconcilers {
namespace {

PodView ViewOf(Json status) {
  const StatusOr<PodView> pod = ToPodView(
      {{"metadata", {{"name", "demo-decode-0"}}}, {"status", status}});
  EXPECT_TRUE(pod.ok());
  return *pod;
}

PodView Waiting(const char* reason, const char* message, Json last = {}) {
  return ViewOf(
      {{"containerStatuses",
        Json::array(
            {{{"state",
               {{"waiting", {{"reason", reason}, {"message", message}}}}},
              {"lastState", {{"terminated", std::move(last)}}}}})}});
}

TEST(ToPodViewTest, SaysWhatTheSchedulerSaid) {
  const PodView pod = ViewOf(
      {{"conditions", Json::array({{{"type", "PodScheduled"},
                                    {"status", "False"},
                                    {"reason", "Unschedulable"},
                                    {"message",
                                     "0/2 nodes are available: 2 Insufficient "
                                     "nvidia.com/gpu."}}})}});
  EXPECT_EQ(pod.trouble, PodTrouble::kUnschedulable);
  EXPECT_EQ(pod.trouble_text,
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.");
}

TEST(ToPodViewTest, SaysWhichImageOrSecretIsMissing) {
  EXPECT_EQ(Waiting("ImagePullBackOff", "no such tag").trouble,
            PodTrouble::kImage);
  const PodView pod =
      Waiting("CreateContainerConfigError", "secret \"hub\" not found");
  EXPECT_EQ(pod.trouble, PodTrouble::kConfig);
  EXPECT_EQ(pod.trouble_text, "secret \"hub\" not found");
}

// The back-off in the kubelet's message changes with each restart.
TEST(ToPodViewTest, LastWordsOfACrashAreThoseOfItsLog) {
  const auto words = [](Json last) {
    const PodView pod =
        Waiting("CrashLoopBackOff", "back-off 20s restarting", std::move(last));
    EXPECT_EQ(pod.trouble, PodTrouble::kCrashing);
    return pod.trouble_text;
  };
  EXPECT_EQ(words({{"message",
                    "{\"time\":\"1\",\"message\":\"starting\"}\n"
                    "{\"time\":\"2\",\"message\":\"--page-size: 7 is odd\"}\n"},
                   {"exitCode", 2}}),
            "--page-size: 7 is odd");
  EXPECT_EQ(words({{"message", "terminate called\nAborted\n"}}), "Aborted");
  EXPECT_EQ(words({{"exitCode", 139}}), "exit code 139");
  EXPECT_EQ(words({{"message", std::string(1000, 'x')}}).size(), 256u);
}

TEST(ToPodViewTest, DevicesAreFoundBehindSidecars) {
  const auto container = [](const char* name, Json limits) {
    return Json{{"name", name}, {"resources", {{"limits", std::move(limits)}}}};
  };
  const auto pod = ToPodView(
      {{"metadata", {{"name", "demo-decode-0"}}},
       {"spec",
        {{"containers",
          Json::array({container("istio-proxy", {{"cpu", "2"}}),
                       container("worker", {{"nvidia.com/gpu", "8"}})})}}}});
  ASSERT_TRUE(pod.ok());
  EXPECT_EQ(pod->devices, 8u);
}

TEST(ToPodViewTest, StartingIsNoTrouble) {
  const PodView pod = Waiting("ContainerCreating", "in a moment");
  EXPECT_EQ(pod.trouble, PodTrouble::kNone);
  EXPECT_EQ(pod.trouble_text, "");
  EXPECT_EQ(Waiting("CrashLoopBackOff", "", {{"reason", "OOMKilled"}}).trouble,
            PodTrouble::kOutOfMemory);
}

}  // namespace
}  // namespace tidepool::reconcilers
