#include "controller/runtime/informer.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "tests/fakes/informer_pump.h"

namespace tidepool::runtime {
namespace {

using fakes::ApiServer;
using fakes::FaultyClient;
using fakes::InformerPump;
using kube::Json;
using kube::ObjectKey;
using std::chrono::minutes;

struct Thing {
  std::string name, color, version;
  friend bool operator==(const Thing&, const Thing&) = default;
};

StatusOr<Thing> ToThing(const Json& object) {
  const Json data = object.value("data", Json::object());
  return Thing{.name = object["metadata"]["name"],
               .color = data.value("color", "none"),
               .version = object["metadata"]["resourceVersion"]};
}

Json Colored(const std::string& name, const std::string& color) {
  Json object = kube::Skeleton(kube::kConfigMap, {"space", name});
  object["data"] = {{"color", color}};
  return object;
}

class InformerTest : public ::testing::Test {
 protected:
  InformerTest() {
    by_color_ = things_.AddIndex([](const Thing& thing, auto& values) {
      values.push_back(thing.color);
    });
    things_.AddHandler(
        [this](const ObjectKey& key, const Thing* before, const Thing* after) {
          told_.push_back(fmt::format("{} {} {}", key.name,
                                      before ? before->color : "-",
                                      after ? after->color : "-"));
        });
    pump_.Add(things_);
  }

  void Set(const std::string& name, const std::string& color) {
    ASSERT_TRUE(
        server_.Apply(kube::kConfigMap, {"space", name}, Colored(name, color))
            .ok());
  }
  void Remove(const std::string& name) {
    ASSERT_TRUE(server_.Delete(kube::kConfigMap, {"space", name}).ok());
  }
  void PollAll() {
    while (pump_.Poll()) {
    }
  }
  std::vector<std::string> Told() { return std::exchange(told_, {}); }

  ManualClock clock_;
  ApiServer server_{{}, clock_};
  FaultyClient client_{server_, 1};
  Informer<Thing> things_{{.type = kube::kConfigMap}, ToThing};
  Informer<Thing>::IndexId by_color_ = 0;
  std::vector<std::string> told_;
  InformerPump pump_{client_, clock_};
};

TEST_F(InformerTest, KeepsACopyThatFollows) {
  Set("a", "red");
  EXPECT_FALSE(things_.HasSynced());
  PollAll();
  EXPECT_TRUE(things_.HasSynced());
  Set("b", "red");
  Set("a", "blue");
  PollAll();
  EXPECT_EQ(things_.Get({"space", "a"})->color, "blue");
  EXPECT_EQ(things_.List().size(), 2u);
  EXPECT_EQ(things_.Keys(),
            (std::vector<ObjectKey>{{"space", "a"}, {"space", "b"}}));
  Remove("b");
  PollAll();
  EXPECT_EQ(things_.Get({"space", "b"}), nullptr);
  EXPECT_EQ(Told(), (std::vector<std::string>{"a - red", "b - red",
                                              "a red blue", "b red -"}));
}

TEST_F(InformerTest, FindsByIndex) {
  Set("a", "red");
  Set("b", "red");
  Set("c", "blue");
  PollAll();
  EXPECT_EQ(things_.ByIndex(by_color_, "red").size(), 2u);
  Set("a", "blue");
  Remove("b");
  PollAll();
  EXPECT_TRUE(things_.ByIndex(by_color_, "red").empty());
  const auto blue = things_.ByIndex(by_color_, "blue");
  ASSERT_EQ(blue.size(), 2u);
  EXPECT_EQ(blue[0]->name, "a");
}

TEST_F(InformerTest, AListAgainTellsOnlyWhatChanged) {
  Set("a", "red");
  Set("b", "red");
  Set("c", "red");
  PollAll();
  Told();
  client_.Cut();
  PollAll();
  Remove("b");
  Set("c", "blue");
  server_.Compact();
  client_.Revive();
  clock_.Advance(minutes(1));
  PollAll();
  clock_.Advance(minutes(1));
  PollAll();
  EXPECT_EQ(Told(), (std::vector<std::string>{"c red blue", "b red -"}));
}

TEST_F(InformerTest, WhatIsNotUnderstoodKeepsWhatWasKnown) {
  Informer<Thing> strict({.type = kube::kConfigMap},
                         [](const Json& object) -> StatusOr<Thing> {
                           StatusOr<Thing> thing = ToThing(object);
                           if (thing->color == "black")
                             return InvalidArgument("no color");
                           if (thing->color == "odd")
                             thing->name = object.at("none").get<std::string>();
                           return thing;
                         });
  pump_.Add(strict);
  Set("a", "red");
  Set("b", "black");
  PollAll();
  EXPECT_TRUE(strict.HasSynced());
  EXPECT_EQ(strict.Get({"space", "b"}), nullptr);
  Set("a", "odd");
  PollAll();
  EXPECT_EQ(strict.Get({"space", "a"})->color, "red");
  EXPECT_EQ(strict.stats().rejected_total, 2u);
  Remove("a");
  PollAll();
  EXPECT_EQ(strict.Get({"space", "a"}), nullptr);
}

TEST_F(InformerTest, RunsOnAThreadOfItsOwn) {
  Informer<Thing> threaded({.type = kube::kConfigMap}, ToThing);
  Notification deleted;
  threaded.AddHandler([&](const ObjectKey&, const Thing*, const Thing* after) {
    if (after == nullptr) deleted.Notify();
  });
  Set("a", "red");
  threaded.Start(server_);
  ASSERT_TRUE(threaded.WaitForSync(minutes(1)));
  EXPECT_NE(threaded.Get({"space", "a"}), nullptr);
  Remove("a");
  ASSERT_TRUE(deleted.WaitFor(minutes(1)));
  threaded.Stop();
  EXPECT_EQ(threaded.stats().objects, 0u);
  EXPECT_EQ(threaded.stats().lists_total, 1u);
}

// What handlers have been told, checked for being a possible history.
class Follower {
 public:
  explicit Follower(Informer<Thing>& things) {
    things.AddHandler(
        [this](const ObjectKey& key, const Thing* before, const Thing* after) {
          const auto it = known_.find(key);
          const bool known = it != known_.end();
          EXPECT_EQ(before != nullptr, known) << key.ToString();
          if (known && before != nullptr) {
            EXPECT_EQ(it->second, *before);
          }
          if (after != nullptr) {
            known_[key] = *after;
          } else {
            known_.erase(key);
          }
        });
  }
  const std::map<ObjectKey, Thing>& known() const { return known_; }

 private:
  std::map<ObjectKey, Thing> known_;
};

// One informer before a server that changes, forgets, is cut off, answers from
// the past and loses events.
class GapSchedule {
 public:
  explicit GapSchedule(uint64_t seed)
      : random_(seed),
        server_({.history_max = 4 + random_.Below(40)}, clock_),
        client_(server_, seed),
        things_({.type = kube::kConfigMap, .page_objects = 3, .seed = seed},
                ToThing),
        follower_(things_),
        pump_(client_, clock_) {
    pump_.Add(things_);
    client_.set_rates({.read_failed = 0.1 * random_.Unit(),
                       .read_stale = 0.3 * random_.Unit(),
                       .list_broken = 0.3 * random_.Unit()});
  }

  void Run() {
    const uint64_t steps = 20 + random_.Below(60);
    for (uint64_t i = 0; i < steps; ++i) Disturb();
    Heal();
  }

  // Everything that was done before, is known within the time promised.
  bool Converges() {
    const TimePoint end = clock_.Now() + minutes(32);
    while (clock_.Now() < end) {
      while (pump_.Poll()) {
      }
      if (IsCurrent()) return true;
      server_.SendBookmarks();
      clock_.Advance(std::chrono::seconds(20));
    }
    return false;
  }

 private:
  void Change() {
    const std::string name(1, static_cast<char>('a' + random_.Below(8)));
    const ObjectKey key{"space", name};
    if (random_.Chance(0.4)) {
      (void)server_.Delete(kube::kConfigMap, key);
    } else {
      ASSERT_TRUE(
          server_
              .Apply(kube::kConfigMap, key,
                     Colored(name, random_.Chance(0.5) ? "red" : "blue"))
              .ok());
    }
  }

  void Disturb() {
    switch (random_.Below(16)) {
      case 0:
        return pump_.DropWatches();
      case 1:
        return server_.Compact();
      case 2:
        return server_.EndWatches();
      case 3:
        return server_.SendBookmarks();
      case 4:
        return client_.Cut();
      case 5:
        return client_.Freeze();
      case 6:
        return client_.Revive();
      case 7:
        return client_.Deafen();
      case 8:
        return clock_.Advance(minutes(random_.Below(6)));
      case 9:
      case 10:
      case 11:
        clock_.Advance(std::chrono::seconds(random_.Below(10)));
        (void)pump_.Poll(random_.Below(4));
        return;
      default:
        return Change();
    }
  }

  void Heal() {
    client_.Revive();
    client_.set_rates({});
  }

  bool IsCurrent() {
    std::map<ObjectKey, Thing> stored;
    const auto listed = server_.List(kube::kConfigMap, {}, [&](Json& object) {
      stored[{"space", object["metadata"]["name"]}] = *ToThing(object);
    });
    std::map<ObjectKey, Thing> cached;
    for (const auto& thing : things_.List())
      cached[{"space", thing->name}] = *thing;
    EXPECT_EQ(cached, follower_.known());
    return listed.ok() && things_.HasSynced() && cached == stored;
  }

  ManualClock clock_;
  Random random_;
  ApiServer server_;
  FaultyClient client_;
  Informer<Thing> things_;
  Follower follower_;
  InformerPump pump_;
};

TEST(InformerGapTest, TenThousandSchedulesOfGapsMissNoDelete) {
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    GapSchedule schedule(seed);
    schedule.Run();
    ASSERT_TRUE(schedule.Converges()) << "seed " << seed;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tidepool::runtime
