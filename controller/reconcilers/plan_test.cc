#include "controller/reconcilers/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/reconcilers/worker_pool/rollout.h"

namespace tidepool::reconcilers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Condition kReady{"Ready", true, "AllReady", "3 of 3 ready"};
const Condition kUnready{"Ready", false, "NotReady", "2 of 3 ready"};

TEST(MergeConditionsTest, TransitionTimesMoveWithTheStatusAlone) {
  const Json first = MergeConditions(Json(), {kReady}, 1, "t1");
  EXPECT_EQ(first[0]["lastTransitionTime"], "t1");
  const Json same = MergeConditions(
      first, {{"Ready", true, "ScaledToZero", "no replica is wanted"}}, 2,
      "t2");
  EXPECT_EQ(same[0]["lastTransitionTime"], "t1");
  EXPECT_EQ(same[0]["reason"], "ScaledToZero");
  EXPECT_EQ(same[0]["observedGeneration"], 2);
  EXPECT_EQ(MergeConditions(same, {kUnready}, 2, "t3")[0]["lastTransitionTime"],
            "t3");
}

TEST(MergeConditionsTest, TakesWhatIsThereForWhatItIs) {
  for (const char* before : {"7", R"([7, {}, {"type": 1}])",
                             R"([{"type": "Ready", "status": "True"}])"})
    EXPECT_EQ(MergeConditions(Json::parse(before), {kReady}, 1,
                              "now")[0]["lastTransitionTime"],
              "now");
}

TEST(StatusPatchTest, SaysOnlyWhatDiffers) {
  const Json before = {{"a", 1}, {"b", {{"x", 1}, {"y", 2}}}, {"c", 3}};
  EXPECT_TRUE(StatusPatch(before, {{"a", 1}}).is_null());
  EXPECT_TRUE(StatusPatch(before, {{"d", nullptr}}).is_null());
  EXPECT_EQ(StatusPatch(before, {{"a", 2}, {"c", nullptr}}),
            Json({{"a", 2}, {"c", nullptr}}));
  EXPECT_EQ(StatusPatch(before, {{"b", {{"x", 1}}}}),
            Json({{"b", {{"x", 1}, {"y", nullptr}}}}));
  EXPECT_EQ(StatusPatch(Json(), {{"a", 1}}), Json({{"a", 1}}));
}

TEST(EventsOfTest, ToldOnceWhenSomethingChanges) {
  const Json before = MergeConditions(Json(), {kReady}, 1, "t");
  EXPECT_THAT(EventsOf(before, {kReady}), IsEmpty());
  const auto events = EventsOf(before, {kUnready});
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_TRUE(events[0].is_warning);
  EXPECT_EQ(events[0].reason, "NotReady");
  EXPECT_THAT(EventsOf(Json(), {kUnready}), IsEmpty());
  EXPECT_THAT(EventsOf(Json(), {{"Degraded", true, "InvalidSpec", "x"}}),
              SizeIs(1));
}

TEST(ShortenedTest, CutsBetweenCharacters) {
  EXPECT_EQ(Shortened("short", 10), "short");
  EXPECT_EQ(Shortened("ééééé", 8), "éé...");
}

TEST(PlanTest, AFailedApplyShowsUnlessItSettlesByItself) {
  Plan plan;
  plan.conditions = {{"Degraded", false, "AsExpected", ""}};
  for (const Code code :
       {Code::kAborted, Code::kCancelled, Code::kDeadlineExceeded}) {
    plan.NoteApplied(Status(code, "not now"));
    EXPECT_FALSE(plan.conditions[0].is_true);
  }
  plan.NoteApplied(Status(Code::kPermissionDenied, "services: forbidden"));
  EXPECT_TRUE(plan.conditions[0].is_true);
  EXPECT_EQ(plan.conditions[0].reason, "ApplyFailed");
}

struct PodSpec {
  bool outdated = false, ready = true, terminating = false;
};

class RolloutTest : public ::testing::Test {
 protected:
  std::vector<std::string> Replaced(const std::vector<PodSpec>& specs,
                                    RolloutSpec rollout = {},
                                    int32_t target = -1) {
    std::vector<std::shared_ptr<const PodView>> pods;
    for (size_t i = 0; i < specs.size(); ++i) {
      auto pod = std::make_shared<PodView>();
      pod->key.name = "p-" + std::to_string(i);
      pod->revision = specs[i].outdated ? "old" : "new";
      pod->ready = specs[i].ready;
      pod->terminating = specs[i].terminating;
      pods.push_back(std::move(pod));
    }
    std::vector<std::string> names;
    for (const auto& pod :
         PodsToReplace({.rollout = rollout,
         .target = target < 0 ? static_cast<int32_t>(specs.size()) : target,
         .replicas = static_cast<int32_t>(specs.size()),
         .update_revision = "new",
         .pods = pods}))
      names.push_back(pod->key.name);
    return names;
  }

  static constexpr PodSpec kOld{.outdated = true};
  static constexpr PodSpec kNew{};
  static constexpr PodSpec kNewLoading{.ready = false};
  static constexpr PodSpec kOldBroken{.outdated = true, .ready = false};
  static constexpr PodSpec kOldGoing{.outdated = true, .terminating = true};
};

TEST_F(RolloutTest, OneAtATimeFromTheHighestOrdinal) {
  EXPECT_THAT(Replaced({kOld, kOld, kOld}), ElementsAre("p-2"));
  EXPECT_THAT(Replaced({kOld, kOld, kNew}), ElementsAre("p-1"));
  EXPECT_THAT(Replaced({kNew, kNew, kNew}), IsEmpty());
}

TEST_F(RolloutTest, WaitsForTheOneBefore) {
  EXPECT_THAT(Replaced({kOld, kOld, kNewLoading}), IsEmpty());
  EXPECT_THAT(Replaced({kOld, kOld, kOldGoing}), IsEmpty());
}

TEST_F(RolloutTest, PodsThatServeNobodyGoFirstAndAtOnce) {
  EXPECT_THAT(Replaced({kOldBroken, kOld, kOld}), ElementsAre("p-0"));
  EXPECT_THAT(Replaced({kOldBroken, kOldBroken, kOld}),
              ElementsAre("p-0", "p-1"));
}

TEST_F(RolloutTest, MissingPodsForOtherReasonsCount) {
  // Two of four are away: nothing more is taken, whatever took them.
  EXPECT_THAT(Replaced({kOld, kOld}, {.max_unavailable = 1}, 4), IsEmpty());
  EXPECT_THAT(Replaced({kOld, kOld, kOld, kOld}, {.max_unavailable = 2}),
              ElementsAre("p-3", "p-2"));
}

TEST_F(RolloutTest, ASurgePodStandsInForOne) {
  const RolloutSpec surge{.max_unavailable = 0, .max_surge = 1};
  EXPECT_THAT(Replaced({kOld, kOld}, surge), IsEmpty());
  EXPECT_THAT(Replaced({kOld, kOld, kNewLoading}, surge, 2), IsEmpty());
  EXPECT_THAT(Replaced({kOld, kOld, kNew}, surge, 2), ElementsAre("p-1"));
}

TEST_F(RolloutTest, PausedIsPaused) {
  EXPECT_THAT(Replaced({kOldBroken, kOld}, {.is_paused = true}), IsEmpty());
}

}  // namespace
}  // namespace tidepool::reconcilers
