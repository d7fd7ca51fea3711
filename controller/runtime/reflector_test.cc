#include "controller/runtime/reflector.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidepool::runtime {
namespace {

using kube::EventType;
using kube::Json;
using std::chrono::minutes;
using std::chrono::seconds;
using Action = ReflectorCore::Action;

Json At(const std::string& version, const std::string& name = "a") {
  return {{"metadata", {{"name", name}, {"resourceVersion", version}}}};
}

class Log : public ReflectorSink {
 public:
  void BeginReplace() override { calls.push_back("begin"); }
  void EndReplace() override { calls.push_back("end"); }
  void Put(Json& object) override {
    calls.push_back("put " + object["metadata"]["name"].get<std::string>());
  }
  void Remove(const Json& object) override {
    calls.push_back("remove " + object["metadata"]["name"].get<std::string>());
  }
  std::vector<std::string> calls;
};

class ReflectorTest : public ::testing::Test {
 protected:
  void List(const std::string& version) {
    ASSERT_EQ(core_.Next(now_).action, Action::kList);
    core_.BeginList();
    core_.EndList(now_, version);
  }
  void StartWatch(const std::string& from) {
    const ReflectorCore::Step step = core_.Next(now_);
    ASSERT_EQ(step.action, Action::kWatch);
    EXPECT_EQ(step.resource_version, from);
    core_.BeginWatch(now_);
  }
  bool Tell(EventType type, const std::string& version) {
    kube::WatchEvent event{type, At(version)};
    return core_.Watched(now_, event);
  }
  // Past every backoff.
  void Pass(Duration by = seconds(60)) { now_ += by; }

  TimePoint now_{seconds(1000)};
  Log log_;
  ReflectorCore core_{{}, 7, log_};
};

TEST_F(ReflectorTest, WatchesFromTheListAndResumesFromTheLastEvent) {
  EXPECT_FALSE(core_.synced());
  List("5");
  EXPECT_TRUE(core_.synced());
  StartWatch("5");
  EXPECT_TRUE(Tell(EventType::kAdded, "6"));
  EXPECT_TRUE(Tell(EventType::kModified, "7"));
  EXPECT_TRUE(Tell(EventType::kDeleted, "9"));
  EXPECT_TRUE(Tell(EventType::kBookmark, "12"));
  core_.EndWatch(now_, OkStatus());
  StartWatch("12");
  EXPECT_EQ(log_.calls, (std::vector<std::string>{"begin", "end", "put a",
                                                  "put a", "remove a"}));
}

TEST_F(ReflectorTest, ListsAgainWhenTheVersionIsTooOld) {
  List("5");
  StartWatch("5");
  core_.EndWatch(now_, MakeError(Code::kOutOfRange, "410"));
  EXPECT_EQ(core_.Next(now_).action, Action::kWait);
  Pass();
  EXPECT_EQ(core_.Next(now_).action, Action::kList);
}

TEST_F(ReflectorTest, ListsAgainAfterSilence) {
  List("5");
  StartWatch("5");
  EXPECT_TRUE(Tell(EventType::kBookmark, "6"));
  core_.EndWatch(now_, DeadlineExceeded("silence"));
  Pass();
  EXPECT_EQ(core_.Next(now_).action, Action::kList);
}

TEST_F(ReflectorTest, ResumesABrokenConnectionButNotForEver) {
  List("5");
  for (int i = 0; i < 3; ++i) {
    StartWatch("5");
    core_.EndWatch(now_, Unavailable("broken"));
    Pass();
  }
  EXPECT_EQ(core_.Next(now_).action, Action::kList);
}

TEST_F(ReflectorTest, DoesNotListBecauseTheServerIsOverloaded) {
  List("5");
  StartWatch("5");
  core_.EndWatch(now_, ResourceExhausted("429"));
  EXPECT_EQ(core_.Next(now_).action, Action::kWait);
  Pass();
  StartWatch("5");
}

TEST_F(ReflectorTest, AFailedListIsNoList) {
  core_.BeginList();
  Json object = At("3");
  core_.Listed(object);
  core_.EndList(now_, MakeError(Code::kOutOfRange, "continue expired"));
  EXPECT_FALSE(core_.synced());
  EXPECT_EQ(log_.calls, (std::vector<std::string>{"begin", "put a"}));
  Pass();
  List("8");
  EXPECT_TRUE(core_.synced());
}

TEST_F(ReflectorTest, AnOptionalKindMayComeAndGo) {
  ReflectorCore core({.optional = true}, 7, log_);
  const auto list = [&](const StatusOr<std::string>& result) {
    ASSERT_EQ(core.Next(now_).action, Action::kList);
    core.BeginList();
    core.EndList(now_, result);
  };
  list(Unavailable("away"));
  EXPECT_FALSE(core.synced()) << "nobody said that it is not there";
  Pass();
  list(NotFound("404"));
  EXPECT_TRUE(core.synced());
  EXPECT_EQ(core.Next(now_).action, Action::kWait);
  EXPECT_EQ(core.failures(), 1u);
  Pass(minutes(3));
  list("5");
  EXPECT_EQ(core.Next(now_).action, Action::kWatch);
  core.BeginWatch(now_);
  core.EndWatch(now_, NotFound("404"));
  Pass();
  list(NotFound("404"));
  EXPECT_EQ(log_.calls.back(), "end") << "what there was is gone";
}

TEST_F(ReflectorTest, ListsEverythingFromTimeToTime) {
  List("5");
  StartWatch("5");
  EXPECT_TRUE(Tell(EventType::kBookmark, "6"));
  Pass(minutes(31));
  core_.EndWatch(now_, OkStatus());
  EXPECT_EQ(core_.Next(now_).action, Action::kList);
}

TEST_F(ReflectorTest, AsksForNoWatchBeyondTheNextList) {
  List("5");
  Pass(minutes(22));
  const ReflectorCore::Step step = core_.Next(now_);
  ASSERT_EQ(step.action, Action::kWatch);
  EXPECT_LE(step.timeout, minutes(8));
}

TEST_F(ReflectorTest, AnEventFromThePastIsNotBelieved) {
  List("50");
  StartWatch("50");
  EXPECT_FALSE(Tell(EventType::kModified, "9"));
  core_.EndWatch(now_, MakeError(Code::kCancelled, "ours"));
  Pass();
  EXPECT_EQ(core_.Next(now_).action, Action::kList);
  EXPECT_EQ(log_.calls, (std::vector<std::string>{"begin", "end"}));
}

TEST_F(ReflectorTest, AnEventWithoutVersionIsNotBelieved) {
  List("5");
  StartWatch("5");
  kube::WatchEvent event{EventType::kModified, Json::object()};
  EXPECT_FALSE(core_.Watched(now_, event));
}

TEST_F(ReflectorTest, BacksOffLongerAndLongerWithinItsBound) {
  Duration last = Duration::zero();
  for (int i = 0; i < 12; ++i) {
    core_.BeginList();
    core_.EndList(now_, Unavailable("away"));
    const ReflectorCore::Step step = core_.Next(now_);
    ASSERT_EQ(step.action, Action::kWait);
    last = step.at - now_;
    EXPECT_GT(last, Duration::zero());
    EXPECT_LE(last, seconds(38));
    now_ = step.at;
  }
  EXPECT_GE(last, seconds(22));
  EXPECT_EQ(core_.failures(), 12u);
}

TEST_F(ReflectorTest, WatchesThatEndAtOnceAreNotHammered) {
  List("5");
  StartWatch("5");
  core_.EndWatch(now_, OkStatus());
  EXPECT_EQ(core_.Next(now_).action, Action::kWait);
}

TEST_F(ReflectorTest, AListThatIsExpiredAtOnceIsNotHammered) {
  Duration waited = Duration::zero();
  for (int i = 0; i < 8; ++i) {
    List("5");
    StartWatch("5");
    core_.EndWatch(now_, MakeError(Code::kOutOfRange, "410"));
    waited = core_.Next(now_).at - now_;
    now_ += waited;
  }
  EXPECT_GT(waited, seconds(10));
}

}  // namespace
}  // namespace tidepool::runtime
