#include "tests/fakes/api_server.h"

#include <gtest/gtest.h>

#include <thread>

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "tests/fakes/faulty_client.h"

namespace tidepool::fakes {
namespace {

using kube::EventType;
using kube::Json;
using kube::ObjectKey;

const ObjectKey kKey{"space", "thing"};

Json Named(const kube::ResourceType& type, Json rest = Json::object(),
           const ObjectKey& key = kKey) {
  Json object = kube::Skeleton(type, key);
  object.update(rest, /*merge_objects=*/true);
  return object;
}

class ApiServerTest : public ::testing::Test {
 protected:
  Json Make(const kube::ResourceType& type, Json rest = Json::object(),
            const ObjectKey& key = kKey) {
    return *server_.Create(type, key.space, Named(type, std::move(rest), key));
  }
  static std::string VersionOf(const Json& object) {
    return object["metadata"]["resourceVersion"];
  }

  ManualClock clock_;
  ApiServer server_{{}, clock_};
};

TEST_F(ApiServerTest, CreatesOnceAndGivesWhatItStored) {
  const Json made = Make(kube::kConfigMap, {{"data", {{"a", "1"}}}});
  EXPECT_EQ(made["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
  EXPECT_EQ(*server_.Get(kube::kConfigMap, kKey), made);
  EXPECT_EQ(server_.Create(kube::kConfigMap, "space", Named(kube::kConfigMap))
                .status()
                .code(),
            Code::kAlreadyExists);
  EXPECT_EQ(server_.Get(kube::kSecret, kKey).status().code(), Code::kNotFound);
}

TEST_F(ApiServerTest, RefusesAReplacementOfAnOlderVersion) {
  Json made = Make(kube::kConfigMap);
  Json first = made;
  first["data"] = {{"a", "1"}};
  ASSERT_TRUE(server_.Replace(kube::kConfigMap, kKey, first).ok());
  EXPECT_EQ(server_.Replace(kube::kConfigMap, kKey, made).status().code(),
            Code::kAborted);
  EXPECT_EQ(server_
                .Patch(kube::kConfigMap, kKey, kube::PatchType::kMerge,
                       {{"metadata", {{"resourceVersion", VersionOf(made)}}},
                        {"data", {{"b", "2"}}}})
                .status()
                .code(),
            Code::kAborted);
}

TEST_F(ApiServerTest, ApplyRemovesWhatItNoLongerNames) {
  const auto apply = [&](Json data) {
    return *server_.Apply(kube::kConfigMap, kKey,
                          Named(kube::kConfigMap, {{"data", std::move(data)}}));
  };
  apply({{"a", "1"}, {"b", "2"}});
  // Somebody else's stays.
  ASSERT_TRUE(server_
                  .Patch(kube::kConfigMap, kKey, kube::PatchType::kMerge,
                         {{"data", {{"c", "3"}}}})
                  .ok());
  const Json now = apply({{"a", "1"}});
  EXPECT_EQ(now["data"], Json({{"a", "1"}, {"c", "3"}}));
}

TEST_F(ApiServerTest, ApplyLeavesWhatOthersHaveTakenOver) {
  Json spec = {{"spec", {{"replicas", 2}, {"serviceName", "x"}}}};
  ASSERT_TRUE(
      server_.Apply(kube::kStatefulSet, kKey, Named(kube::kStatefulSet, spec))
          .ok());
  ASSERT_TRUE(kube::Scale(server_, kube::kStatefulSet, kKey, 5).ok());
  spec["spec"].erase("replicas");
  const Json now =
      *server_.Apply(kube::kStatefulSet, kKey, Named(kube::kStatefulSet, spec));
  EXPECT_EQ(now["spec"]["replicas"], 5);
}

TEST_F(ApiServerTest, ApplyMergesContainersByName) {
  const auto apply = [&](Json containers) {
    return *server_.Apply(
        kube::kDeployment, kKey,
        Named(kube::kDeployment,
              {{"spec",
                {{"template",
                  {{"spec", {{"containers", std::move(containers)}}}}}}}}));
  };
  apply({{{"name", "a"}, {"image", "x"}}, {{"name", "b"}, {"image", "y"}}});
  const Json now = apply({{{"name", "b"}, {"image", "z"}}});
  EXPECT_EQ(now["spec"]["template"]["spec"]["containers"],
            Json::array({{{"name", "b"}, {"image", "z"}}}));
}

TEST_F(ApiServerTest, ApplyThatChangesNothingIsNoChange) {
  const Json object = Named(kube::kConfigMap, {{"data", {{"a", "1"}}}});
  const Json first = *server_.Apply(kube::kConfigMap, kKey, object);
  const Json second = *server_.Apply(kube::kConfigMap, kKey, object);
  EXPECT_EQ(first, second);
  EXPECT_EQ(server_.changes(kube::kConfigMap), 1u);
}

TEST_F(ApiServerTest, StatusAndSpecAreWrittenApart) {
  Json made = Make(kube::kPrefillPool,
                   {{"spec", {{"replicas", 1}}}, {"status", {{"x", 1}}}});
  EXPECT_FALSE(made.contains("status"));
  EXPECT_EQ(made["metadata"]["generation"], 1);
  const Json status =
      *kube::ApplyStatus(server_, kube::kPrefillPool, kKey, {{"replicas", 1}});
  EXPECT_EQ(status["metadata"]["generation"], 1);
  EXPECT_EQ(status["status"]["replicas"], 1);
  Json changed = status;
  changed["spec"]["replicas"] = 2;
  changed["status"]["replicas"] = 7;
  const Json now = *server_.Replace(kube::kPrefillPool, kKey, changed);
  EXPECT_EQ(now["metadata"]["generation"], 2);
  EXPECT_EQ(now["status"]["replicas"], 1);
}

TEST_F(ApiServerTest, StatusWithAnOldVersionConflicts) {
  const Json made = Make(kube::kPrefillPool, {{"spec", {{"replicas", 1}}}});
  ASSERT_TRUE(kube::Scale(server_, kube::kPrefillPool, kKey, 2).ok());
  EXPECT_EQ(kube::ApplyStatus(server_, kube::kPrefillPool, kKey,
                              {{"replicas", 1}}, VersionOf(made))
                .status()
                .code(),
            Code::kAborted);
}

TEST_F(ApiServerTest, FinalizersHoldADeletedObject) {
  Json made = Make(kube::kPrefillPool, {{"metadata", {{"finalizers", {"f"}}}}});
  ASSERT_TRUE(server_.Delete(kube::kPrefillPool, kKey).ok());
  Json now = *server_.Get(kube::kPrefillPool, kKey);
  EXPECT_TRUE(now["metadata"].contains("deletionTimestamp"));
  now["metadata"].erase("finalizers");
  ASSERT_TRUE(server_.Replace(kube::kPrefillPool, kKey, now).ok());
  EXPECT_EQ(server_.Get(kube::kPrefillPool, kKey).status().code(),
            Code::kNotFound);
}

TEST_F(ApiServerTest, WhatIsOwnedGoesWithItsOwner) {
  const Json owner = Make(kube::kKVCachePool);
  const auto owned = [&](const std::string& uid) {
    return Json{{"metadata",
                 {{"ownerReferences",
                   {kube::OwnerReference(kube::kKVCachePool, "thing", uid)}}}}};
  };
  Make(kube::kStatefulSet, owned(owner["metadata"]["uid"]));
  const Json set = *server_.Get(kube::kStatefulSet, kKey);
  Make(kube::kPod, owned(set["metadata"]["uid"]));
  Make(kube::kSecret, owned("of nobody"));
  ASSERT_TRUE(server_.Delete(kube::kKVCachePool, kKey).ok());
  EXPECT_FALSE(server_.Get(kube::kStatefulSet, kKey).ok());
  EXPECT_FALSE(server_.Get(kube::kPod, kKey).ok());
  EXPECT_TRUE(server_.Get(kube::kSecret, kKey).ok());
  server_.CollectGarbage();
  EXPECT_FALSE(server_.Get(kube::kSecret, kKey).ok());
}

TEST_F(ApiServerTest, BoundPodsStayUntilTheirKubeletHasEndedThem) {
  Make(kube::kPod, {{"spec", {{"nodeName", "n"}}}});
  ASSERT_TRUE(server_.Delete(kube::kPod, kKey).ok());
  EXPECT_TRUE((*server_.Get(kube::kPod, kKey))["metadata"].contains(
      "deletionTimestamp"));
  ASSERT_TRUE(
      server_.Delete(kube::kPod, kKey, {.grace_period_seconds = 0}).ok());
  EXPECT_FALSE(server_.Get(kube::kPod, kKey).ok());
}

TEST_F(ApiServerTest, ListsPagesOfOneVersion) {
  for (int i = 0; i < 7; ++i)
    Make(kube::kPod, Json::object(), {"space", fmt::format("p{}", i)});
  int pages = 0;
  server_.set_between_pages([&] {
    ++pages;
    (void)server_.Delete(kube::kPod, {"space", "p6"});
  });
  int seen = 0;
  const auto version =
      server_.List(kube::kPod, {.limit = 3}, [&](Json&) { ++seen; });
  EXPECT_EQ(*version, "7");
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(pages, 2);
  server_.set_between_pages([&] {
    Make(kube::kPod, Json::object(), {"space", "late"});
    server_.Compact();
  });
  EXPECT_EQ(
      server_.List(kube::kPod, {.limit = 3}, [](Json&) {}).status().code(),
      Code::kOutOfRange);
}

TEST_F(ApiServerTest, SelectsByLabels) {
  Make(kube::kPod, {{"metadata", {{"labels", {{"a", "1"}, {"b", "x"}}}}}});
  const auto count = [&](const std::string& selector) {
    int seen = 0;
    EXPECT_TRUE(server_
                    .List(kube::kPod, {.label_selector = selector},
                          [&](Json&) { ++seen; })
                    .ok());
    return seen;
  };
  EXPECT_EQ(count("a=1,b in (x, y)"), 1);
  EXPECT_EQ(count("a,!c,b!=z,b notin (q)"), 1);
  EXPECT_EQ(count("a=2"), 0);
  EXPECT_EQ(count("c"), 0);
  EXPECT_EQ(count("b notin (x)"), 0);
}

TEST_F(ApiServerTest, AWatchTellsWhatEntersAndLeavesItsSelector) {
  const auto stream = *server_.OpenWatch(
      kube::kPod, {.label_selector = "a=1", .resource_version = "0"});
  const auto label = [&](const char* value) {
    ASSERT_TRUE(server_
                    .Patch(kube::kPod, kKey, kube::PatchType::kMerge,
                           {{"metadata", {{"labels", {{"a", value}}}}}})
                    .ok());
  };
  Make(kube::kPod);
  EXPECT_FALSE(stream->Poll()->has_value());
  label("1");
  EXPECT_EQ((*stream->Poll())->type, EventType::kAdded);
  label("2");
  const kube::WatchEvent left = **stream->Poll();
  EXPECT_EQ(left.type, EventType::kDeleted);
  EXPECT_EQ(VersionOf(left.object), std::to_string(server_.version()));
}

TEST_F(ApiServerTest, AWatchBehindTheHistoryIsTooOld) {
  const auto stream = *server_.OpenWatch(kube::kPod, {.resource_version = "0"});
  Make(kube::kPod);
  server_.Compact();
  EXPECT_EQ(stream->Poll().status().code(), Code::kOutOfRange);
  EXPECT_EQ(
      server_.OpenWatch(kube::kPod, {.resource_version = "0"}).status().code(),
      Code::kOutOfRange);
  EXPECT_TRUE(server_.OpenWatch(kube::kPod, {.resource_version = "1"}).ok());
}

TEST_F(ApiServerTest, BookmarksSayWhereAWatchStands) {
  const auto stream =
      *server_.OpenWatch(kube::kSecret, {.resource_version = "0"});
  Make(kube::kPod);
  server_.SendBookmarks();
  const kube::WatchEvent bookmark = **stream->Poll();
  EXPECT_EQ(bookmark.type, EventType::kBookmark);
  EXPECT_EQ(VersionOf(bookmark.object), "1");
  EXPECT_FALSE(stream->Poll()->has_value());
  server_.EndWatches();
  EXPECT_EQ(stream->Poll().status().code(), Code::kUnavailable);
}

TEST_F(ApiServerTest, ABlockedWatchIsWokenByChangesAndByItsStop) {
  std::stop_source stop;
  std::vector<std::string> seen;
  std::thread watcher([&] {
    const Status ended = server_.Watch(
        kube::kPod, {.resource_version = "0", .stop = stop.get_token()},
        [&](kube::WatchEvent& event) {
          seen.push_back(event.object["metadata"]["name"]);
          if (seen.size() == 2) stop.request_stop();
          return true;
        });
    EXPECT_EQ(ended.code(), Code::kCancelled);
  });
  Make(kube::kPod, Json::object(), {"space", "a"});
  Make(kube::kPod, Json::object(), {"space", "b"});
  watcher.join();
  EXPECT_EQ(seen, (std::vector<std::string>{"a", "b"}));
}

TEST_F(ApiServerTest, KnowsThePast) {
  Make(kube::kPod, Json::object(), {"space", "a"});
  Make(kube::kPod, Json::object(), {"space", "b"});
  ASSERT_TRUE(server_.Delete(kube::kPod, {"space", "a"}).ok());
  EXPECT_EQ(server_.ListAt(kube::kPod, {}, 1)->size(), 1u);
  EXPECT_EQ(server_.ListAt(kube::kPod, {}, 2)->size(), 2u);
  EXPECT_EQ(server_.ListAt(kube::kPod, {}, 3)->size(), 1u);
  server_.Compact();
  EXPECT_EQ(server_.ListAt(kube::kPod, {}, 2).status().code(),
            Code::kOutOfRange);
}

TEST_F(ApiServerTest, AdmissionRefusesAndDefaults) {
  server_.set_admission(
      [](const kube::ResourceType&, const Json*, Json& after) -> Status {
        if (after.contains("data")) return InvalidArgument("no data");
        after["kept"] = true;
        return OkStatus();
      });
  EXPECT_EQ(Make(kube::kConfigMap)["kept"], true);
  EXPECT_EQ(server_
                .Patch(kube::kConfigMap, kKey, kube::PatchType::kMerge,
                       {{"data", {{"a", "1"}}}})
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST_F(ApiServerTest, PatchesByPointer) {
  Make(kube::kConfigMap, {{"data", {{"a", "1"}}}});
  const Json patch =
      Json::array({{{"op", "replace"}, {"path", "/data/a"}, {"value", "2"}}});
  EXPECT_EQ((*server_.Patch(kube::kConfigMap, kKey, kube::PatchType::kJson,
                            patch))["data"]["a"],
            "2");
  const Json bad = Json::array({{{"op", "remove"}, {"path", "/data/none"}}});
  EXPECT_EQ(server_.Patch(kube::kConfigMap, kKey, kube::PatchType::kJson, bad)
                .status()
                .code(),
            Code::kInvalidArgument);
}

class FaultyClientTest : public ApiServerTest {
 protected:
  Status Write(const std::string& value) {
    return client_
        .Apply(kube::kConfigMap, kKey,
               Named(kube::kConfigMap, {{"data", {{"a", value}}}}))
        .status();
  }
  std::string Stored() {
    return (*server_.Get(kube::kConfigMap, kKey))["data"]["a"];
  }

  FaultyClient client_{server_, 1};
};

TEST_F(FaultyClientTest, DiesBeforeOrAfterAWrite) {
  ASSERT_TRUE(Write("0").ok());
  client_.DieAtWrite(2, /*after=*/false);
  EXPECT_TRUE(Write("1").ok());
  EXPECT_EQ(Write("2").code(), Code::kUnavailable);
  EXPECT_EQ(Stored(), "1");
  EXPECT_TRUE(client_.dead());
  EXPECT_EQ(client_.Get(kube::kConfigMap, kKey).status().code(),
            Code::kUnavailable);
  client_.Revive();
  client_.DieAtWrite(1, /*after=*/true);
  EXPECT_EQ(Write("3").code(), Code::kDeadlineExceeded);
  EXPECT_EQ(Stored(), "3");
  EXPECT_TRUE(client_.dead());
}

TEST_F(FaultyClientTest, FailsOneWriteAlone) {
  client_.FailWrite(1, /*after=*/true);
  EXPECT_EQ(Write("1").code(), Code::kDeadlineExceeded);
  EXPECT_EQ(Stored(), "1");
  EXPECT_TRUE(Write("2").ok());
  EXPECT_EQ(client_.writes(), 2u);
  EXPECT_EQ(client_.writes_done(), 2u);
}

TEST_F(FaultyClientTest, ReadsFromThePast) {
  ASSERT_TRUE(Write("1").ok());
  ASSERT_TRUE(Write("2").ok());
  client_.set_rates({.read_stale = 1, .stale_max = 1});
  EXPECT_EQ((*client_.Get(kube::kConfigMap, kKey))["data"]["a"], "1");
}

TEST_F(FaultyClientTest, AFrozenWatchSaysNothingAndACutOneBreaks) {
  const auto stream =
      *client_.OpenWatch(kube::kConfigMap, {.resource_version = "0"});
  client_.Freeze();
  ASSERT_FALSE(Write("1").ok());
  Make(kube::kConfigMap);
  EXPECT_FALSE(stream->Poll()->has_value());
  client_.Revive();
  EXPECT_TRUE(stream->Poll()->has_value());
  client_.Cut();
  EXPECT_EQ(stream->Poll().status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace tidepool::fakes
