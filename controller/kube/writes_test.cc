#include "controller/kube/writes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "controller/kube/event_recorder.h"
#include "controller/kube/resource_types.h"
#include "tests/fakes/api_server.h"

namespace tidepool::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using Type = EventRecorder::Type;

TEST(TimeTest, IsWrittenAndReadAsTheApiWants) {
  EXPECT_EQ(FormatTime(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(FormatTime(1769860800.9), "2026-01-31T12:00:00Z");
  EXPECT_EQ(FormatMicroTime(1769860800.25), "2026-01-31T12:00:00.250000Z");
  EXPECT_EQ(*ParseTime("2026-01-31T12:00:00Z"), 1769860800);
  EXPECT_DOUBLE_EQ(*ParseTime("2026-01-31T12:00:00.250000Z"), 1769860800.25);
  EXPECT_EQ(*ParseTime("2024-02-29T00:00:00Z"), 1709164800);
  for (const char* text :
       {"", "2026-01-31", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z",
        "2026-01-31T12:00:00", "2026-01-31T12:00:00+01:00",
        "2026-01-31T24:00:00Z", "2026-01-31T12:00:00Zx", "-026-01-31T12:00:00Z",
        "2026-01-31T-1:00:00Z"})
    EXPECT_FALSE(ParseTime(text).ok()) << text;
}

TEST(WritesTest, NameObjectsAndOwners) {
  EXPECT_EQ(Skeleton(kPrefillPool, {"space", "a"}),
            Json({{"apiVersion", "tidepool.dev/v1alpha1"},
                  {"kind", "PrefillPool"},
                  {"metadata", {{"name", "a"}, {"namespace", "space"}}}}));
  EXPECT_FALSE(Skeleton(kNode, {"", "n"})["metadata"].contains("namespace"));
  EXPECT_EQ(Skeleton(kPod, {"s", "p"})["apiVersion"], "v1");
  EXPECT_EQ(OwnerReference(kKVCachePool, "a", "u")["controller"], true);
}

class EventRecorderTest : public ::testing::Test {
 protected:
  void Record(const std::string& note, const std::string& uid = "u",
              int times = 1) {
    for (int i = 0; i < times; ++i)
      recorder_.Record({kPrefillPool, {"space", "pool"}, uid}, Type::kNormal,
                       "RoleFlipped", "Rebalance", note);
  }
  std::vector<Json> Events() {
    return *server_.ListAt(kEvent, {.space = "space"}, server_.version());
  }

  ManualClock clock_;
  fakes::ApiServer server_{{}, clock_};
  EventRecorder recorder_{
      {.instance = "me", .series_max = 8, .burst = 3}, server_, clock_, [] {
        return 1769860800.0;
      }};
};

TEST_F(EventRecorderTest, WritesWhatKubectlShows) {
  Record("one worker decodes now");
  ASSERT_EQ(Events().size(), 1u);
  const Json event = Events()[0];
  EXPECT_EQ(event["reason"], "RoleFlipped");
  EXPECT_EQ(event["action"], "Rebalance");
  EXPECT_EQ(event["type"], "Normal");
  EXPECT_EQ(event["note"], "one worker decodes now");
  EXPECT_EQ(event["eventTime"], "2026-01-31T12:00:00.000000Z");
  EXPECT_EQ(event["reportingInstance"], "me");
  EXPECT_EQ(event["regarding"]["kind"], "PrefillPool");
  EXPECT_EQ(event["regarding"]["namespace"], "space");
  EXPECT_EQ(event["regarding"]["uid"], "u");
}

TEST_F(EventRecorderTest, EqualEventsAreCountedWithFewWrites) {
  Record("again", "u", 100);
  ASSERT_EQ(Events().size(), 1u);
  EXPECT_EQ(Events()[0]["series"]["count"], 64);
  EXPECT_EQ(server_.changes(kEvent), 7u);  // 1, 2, 4, … 64
  clock_.Advance(minutes(7));
  Record("again");
  EXPECT_EQ(Events().size(), 2u);
}

TEST_F(EventRecorderTest, ASubjectMayNotFloodButOthersSpeak) {
  for (int i = 0; i < 10; ++i) Record(fmt::format("note {}", i));
  EXPECT_EQ(Events().size(), 3u);
  EXPECT_EQ(recorder_.dropped_total(), 7u);
  Record("other", "u2");
  EXPECT_EQ(Events().size(), 4u);
  clock_.Advance(seconds(31));
  Record("note again");
  EXPECT_EQ(Events().size(), 5u);
}

TEST_F(EventRecorderTest, CutsLongNotesBetweenCharacters) {
  Record(std::string(1023, 'x') + "\xc3\xa9\xc3\xa9");
  EXPECT_EQ(Events()[0]["note"], std::string(1023, 'x'));
}

TEST_F(EventRecorderTest, RemembersABoundedNumberOfSeries) {
  for (int i = 0; i < 50; ++i) {
    Record("once", fmt::format("u{}", i));
    clock_.Advance(milliseconds(1));
  }
  EXPECT_EQ(Events().size(), 50u);
  Record("once", "u49");
  EXPECT_EQ(Events().size(), 50u);
  Record("once", "u0");
  EXPECT_EQ(Events().size(), 51u) << "forgotten, so new";
}

TEST_F(EventRecorderTest, AFailedWriteIsNobodysProblem) {
  server_.set_admission([](const ResourceType&, const Json*, Json&) -> Status {
    return InvalidArgument("no events here");
  });
  Record("lost", "u", 5);
  EXPECT_TRUE(Events().empty());
}

}  // namespace
}  // namespace tidepool::kube
