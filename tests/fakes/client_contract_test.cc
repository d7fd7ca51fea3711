// What the controller relies on, asked of the server in memory and, where its
// programs are at hand, of the real one: so that the former stays true.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "controller/kube/event_recorder.h"
#include "controller/kube/http_client.h"
#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "controller/runtime/informer.h"
#include "controller/runtime/leader_elector.h"
#include "dataplane/base/notification.h"
#include "tests/fakes/api_server.h"
#include "tests/fakes/local_api_server.h"

namespace tidepool::fakes {
namespace {

using kube::EventType;
using kube::Json;
using kube::ObjectKey;
using kube::WatchEvent;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr kube::ResourceType kGadget{"test.tidepool.dev", "v1", "gadgets",
                                     "Gadget"};
// Of what is applied here.
const char kSpace[] = "default";

enum class Kind { kInMemory, kReal };
void PrintTo(Kind kind, std::ostream* out) {
  *out << (kind == Kind::kReal ? "real" : "in memory");
}

LocalApiServer* real_server = nullptr;

Json GadgetDefinition() {
  Json schema = {{"type", "object"},
                 {"properties",
                  {{"spec",
                    {{"type", "object"},
                     {"properties",
                      {{"replicas", {{"type", "integer"}, {"minimum", 0}}},
                       {"color", {{"type", "string"}}}}}}},
                   {"status",
                    {{"type", "object"},
                     {"properties",
                      {{"replicas", {{"type", "integer"}}},
                       {"note", {{"type", "string"}}}}}}}}}};
  Json version = {{"name", "v1"},
                  {"served", true},
                  {"storage", true},
                  {"schema", {{"openAPIV3Schema", std::move(schema)}}},
                  {"subresources",
                   {{"status", Json::object()},
                    {"scale",
                     {{"specReplicasPath", ".spec.replicas"},
                      {"statusReplicasPath", ".status.replicas"}}}}}};
  Json definition = kube::Skeleton(kube::kCustomResourceDefinition,
                                   {"", "gadgets.test.tidepool.dev"});
  definition["spec"] = {
      {"group", kGadget.group},
      {"scope", "Namespaced"},
      {"names", {{"plural", kGadget.plural}, {"kind", kGadget.kind}}},
      {"versions", Json::array({std::move(version)})}};
  return definition;
}

class ClientContractTest : public ::testing::TestWithParam<Kind> {
 protected:
  static void TearDownTestSuite() {
    delete real_server;
    real_server = nullptr;
  }

  void SetUp() override {
    if (GetParam() == Kind::kInMemory) {
      client_ = std::make_unique<ApiServer>();
      return;
    }
    if (KubeBinaries().empty())
      GTEST_SKIP() << "TIDEPOOL_KUBE_BIN names no folder with kube-apiserver "
                      "and etcd: NOT TESTED against a real API server";
    if (real_server == nullptr) {
      ASSERT_FALSE(start_failed_);
      start_failed_ = true;
      auto started = LocalApiServer::Start(KubeBinaries());
      ASSERT_TRUE(started.ok()) << started.status();
      real_server = started->release();
      start_failed_ = false;
    }
    client_ = *kube::HttpClient::Create(real_server->config());
    ASSERT_TRUE(client_
                    ->Apply(kube::kCustomResourceDefinition,
                            {"", "gadgets.test.tidepool.dev"},
                            GadgetDefinition())
                    .ok());
    AwaitServed();
    RemoveAll();
  }
  void TearDown() override {
    if (client_ != nullptr && GetParam() == Kind::kReal) RemoveAll();
  }

  // A kind is served a moment after it was accepted or the server has begun.
  void AwaitServed() {
    const TimePoint end = Clock::Monotonic().Now() + minutes(1);
    while (!client_->List(kGadget, {.space = kSpace}, [](Json&) {}).ok()) {
      ASSERT_LT(Clock::Monotonic().Now(), end);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  void RemoveAll() {
    for (const kube::ResourceType& type : {kGadget, kube::kConfigMap}) {
      std::vector<ObjectKey> keys;
      ASSERT_TRUE(client_
                      ->List(type, {.space = kSpace},
                             [&](Json& object) {
                               const std::string name =
                                   object["metadata"]["name"];
                               if (!name.starts_with("kube-root-ca"))
                                 keys.push_back({kSpace, name});
                             })
                      .ok());
      for (const ObjectKey& key : keys) {
        (void)client_->Patch(type, key, kube::PatchType::kMerge,
                             {{"metadata", {{"finalizers", nullptr}}}});
        (void)client_->Delete(type, key);
      }
    }
  }

  static Json Gadget(const std::string& name, Json spec) {
    Json object = kube::Skeleton(kGadget, {kSpace, name});
    object["spec"] = std::move(spec);
    return object;
  }
  StatusOr<Json> Apply(const std::string& name, Json spec) {
    return client_->Apply(kGadget, {kSpace, name},
                          Gadget(name, std::move(spec)));
  }
  static std::string VersionOf(const Json& object) {
    return object["metadata"]["resourceVersion"];
  }

  static inline bool start_failed_ = false;  // once is enough
  std::unique_ptr<kube::Client> client_;
  const ObjectKey kA{kSpace, "a"};
};

INSTANTIATE_TEST_SUITE_P(InMemory, ClientContractTest,
                         ::testing::Values(Kind::kInMemory));
INSTANTIATE_TEST_SUITE_P(Real, ClientContractTest,
                         ::testing::Values(Kind::kReal));

TEST_P(ClientContractTest, ObjectsAreMadeOnceAndFoundUntilDeleted) {
  EXPECT_EQ(client_->Get(kGadget, kA).status().code(), Code::kNotFound);
  const auto made =
      client_->Create(kGadget, kSpace, Gadget("a", {{"replicas", 1}}));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)["metadata"]["generation"], 1);
  EXPECT_EQ(client_->Create(kGadget, kSpace, Gadget("a", {})).status().code(),
            Code::kAlreadyExists);
  EXPECT_EQ(
      client_
          ->Delete(kGadget, kA, {.uid = "00000000-0000-0000-0000-000000000000"})
          .code(),
      Code::kAborted);
  EXPECT_TRUE(client_->Delete(kGadget, kA).ok());
  EXPECT_EQ(client_->Delete(kGadget, kA).code(), Code::kNotFound);
}

TEST_P(ClientContractTest, ApplyMakesChangesAndTakesBack) {
  const auto made = Apply("a", {{"replicas", 1}, {"color", "red"}});
  ASSERT_TRUE(made.ok()) << made.status();
  const auto same = Apply("a", {{"replicas", 1}, {"color", "red"}});
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(VersionOf(*same), VersionOf(*made)) << "nothing changed";
  const auto less = Apply("a", {{"replicas", 1}});
  ASSERT_TRUE(less.ok());
  EXPECT_FALSE((*less)["spec"].contains("color"));
  EXPECT_EQ((*less)["metadata"]["generation"], 2);
}

TEST_P(ClientContractTest, ApplyLeavesWhatItNeverNamed) {
  ASSERT_TRUE(Apply("a", {{"color", "red"}}).ok());
  ASSERT_TRUE(kube::Scale(*client_, kGadget, kA, 5).ok());
  const auto now = Apply("a", {{"color", "blue"}});
  ASSERT_TRUE(now.ok()) << now.status();
  EXPECT_EQ((*now)["spec"]["replicas"], 5);
  EXPECT_EQ((*now)["spec"]["color"], "blue");
}

TEST_P(ClientContractTest, ScaleTakesTheReplicasOverFromApply) {
  ASSERT_TRUE(Apply("a", {{"replicas", 1}, {"color", "red"}}).ok());
  ASSERT_TRUE(kube::Scale(*client_, kGadget, kA, 5).ok());
  const auto now = Apply("a", {{"color", "red"}});
  ASSERT_TRUE(now.ok());
  EXPECT_EQ((*now)["spec"]["replicas"], 5);
}

TEST_P(ClientContractTest, StatusIsWrittenApartAndKeepsTheGeneration) {
  ASSERT_TRUE(Apply("a", {{"replicas", 1}}).ok());
  const auto now = kube::ApplyStatus(*client_, kGadget, kA,
                                     {{"replicas", 1}, {"note", "hello"}});
  ASSERT_TRUE(now.ok()) << now.status();
  EXPECT_EQ((*now)["metadata"]["generation"], 1);
  EXPECT_EQ((*now)["status"]["note"], "hello");
  // What the status no longer names goes; the spec is not touched.
  const auto later =
      kube::ApplyStatus(*client_, kGadget, kA, {{"replicas", 2}});
  ASSERT_TRUE(later.ok());
  EXPECT_EQ((*later)["status"], Json({{"replicas", 2}}));
  EXPECT_EQ((*later)["spec"]["replicas"], 1);
  // Nor does apply to the spec touch the status.
  const auto last = Apply("a", {{"replicas", 3}});
  ASSERT_TRUE(last.ok());
  EXPECT_EQ((*last)["status"], Json({{"replicas", 2}}));
}

TEST_P(ClientContractTest, StatusWithAnOldVersionConflicts) {
  const auto made = Apply("a", {{"replicas", 1}});
  ASSERT_TRUE(Apply("a", {{"replicas", 2}}).ok());
  EXPECT_EQ(kube::ApplyStatus(*client_, kGadget, kA, {{"replicas", 1}},
                              VersionOf(*made))
                .status()
                .code(),
            Code::kAborted);
  EXPECT_EQ(
      kube::ApplyStatus(*client_, kGadget, {kSpace, "none"}, {{"replicas", 1}})
          .status()
          .code(),
      Code::kNotFound);
}

TEST_P(ClientContractTest, ReplaceAndPatchHonourTheVersion) {
  Json object = *Apply("a", {{"replicas", 1}});
  const Json old = object;
  object["spec"]["replicas"] = 2;
  ASSERT_TRUE(client_->Replace(kGadget, kA, object).ok());
  EXPECT_EQ(client_->Replace(kGadget, kA, old).status().code(), Code::kAborted);
  EXPECT_EQ(client_
                ->Patch(kGadget, kA, kube::PatchType::kMerge,
                        {{"metadata", {{"resourceVersion", VersionOf(old)}}},
                         {"spec", {{"replicas", 3}}}})
                .status()
                .code(),
            Code::kAborted);
  const auto patched = client_->Patch(
      kGadget, kA, kube::PatchType::kJson,
      Json::array(
          {{{"op", "replace"}, {"path", "/spec/replicas"}, {"value", 4}}}));
  ASSERT_TRUE(patched.ok()) << patched.status();
  EXPECT_EQ((*patched)["spec"]["replicas"], 4);
}

TEST_P(ClientContractTest, FinalizersHoldADeletedObject) {
  Json object = Gadget("a", {{"replicas", 1}});
  object["metadata"]["finalizers"] = {"test.tidepool.dev/hold"};
  ASSERT_TRUE(client_->Apply(kGadget, kA, object).ok());
  ASSERT_TRUE(client_->Delete(kGadget, kA).ok());
  const auto held = client_->Get(kGadget, kA);
  ASSERT_TRUE(held.ok());
  EXPECT_TRUE((*held)["metadata"].contains("deletionTimestamp"));
  EXPECT_EQ((*held)["metadata"]["generation"], 2);
  object["metadata"].erase("finalizers");
  ASSERT_TRUE(client_->Apply(kGadget, kA, object).ok());
  EXPECT_EQ(client_->Get(kGadget, kA).status().code(), Code::kNotFound);
}

TEST_P(ClientContractTest, ListsPageByPageAndWatchesFromThere) {
  for (int i = 0; i < 7; ++i)
    ASSERT_TRUE(Apply(fmt::format("g{}", i), {{"replicas", i}}).ok());
  std::vector<std::string> names;
  const auto version =
      client_->List(kGadget, {.space = kSpace, .limit = 3}, [&](Json& object) {
        EXPECT_EQ(object["kind"], "Gadget");
        names.push_back(object["metadata"]["name"]);
      });
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_THAT(names, ElementsAre("g0", "g1", "g2", "g3", "g4", "g5", "g6"));
  ASSERT_TRUE(Apply("g3", {{"replicas", 30}}).ok());
  ASSERT_TRUE(Apply("h", {{"replicas", 1}}).ok());
  ASSERT_TRUE(client_->Delete(kGadget, {kSpace, "g0"}).ok());
  std::vector<std::pair<EventType, std::string>> seen;
  const Status ended = client_->Watch(
      kGadget, {.space = kSpace, .resource_version = *version},
      [&](WatchEvent& event) {
        if (event.type == EventType::kBookmark) return true;
        seen.emplace_back(event.type, event.object["metadata"]["name"]);
        return seen.size() < 3;
      });
  EXPECT_EQ(ended.code(), Code::kCancelled);
  EXPECT_THAT(seen, ElementsAre(std::pair(EventType::kModified, "g3"),
                                std::pair(EventType::kAdded, "h"),
                                std::pair(EventType::kDeleted, "g0")));
}

TEST_P(ClientContractTest, AWatchWithASelectorTellsWhatLeavesIt) {
  Json object = Gadget("a", {{"replicas", 1}});
  object["metadata"]["labels"] = {{"in", "yes"}};
  const Json made = *client_->Apply(kGadget, kA, object);
  object["metadata"]["labels"] = {{"in", "no"}};
  const Json left = *client_->Apply(kGadget, kA, object);
  std::vector<WatchEvent> seen;
  (void)client_->Watch(kGadget,
                       {.space = kSpace,
                        .label_selector = "in=yes",
                        .resource_version = VersionOf(made)},
                       [&](WatchEvent& event) {
                         seen.push_back(event);
                         return false;
                       });
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].type, EventType::kDeleted);
  EXPECT_EQ(VersionOf(seen[0].object), VersionOf(left));
}

TEST_P(ClientContractTest, AWatchEndsAtItsTimeout) {
  const auto version = client_->List(kGadget, {.space = kSpace}, [](Json&) {});
  const Status ended = client_->Watch(
      kGadget,
      {.space = kSpace, .resource_version = *version, .timeout = seconds(1)},
      [](WatchEvent& event) { return event.type == EventType::kBookmark; });
  EXPECT_TRUE(ended.ok()) << ended;
}

TEST_P(ClientContractTest, RefusesWhatTheSchemaForbids) {
  if (auto* fake = dynamic_cast<ApiServer*>(client_.get()))
    fake->set_admission(
        [](const kube::ResourceType&, const Json*, Json& after) -> Status {
          if (after["spec"]["replicas"] < 0) return InvalidArgument("replicas");
          return OkStatus();
        });
  EXPECT_EQ(Apply("a", {{"replicas", -1}}).status().code(),
            Code::kInvalidArgument);
}

TEST_P(ClientContractTest, EventsAreTakenAndCounted) {
  const Json made = *Apply("a", {{"replicas", 1}});
  kube::EventRecorder recorder({.instance = "test"}, *client_,
                               Clock::Monotonic(), UnixSeconds);
  const std::string uid = made["metadata"]["uid"];
  for (int i = 0; i < 4; ++i)
    recorder.Record({kGadget, kA, uid}, kube::EventRecorder::Type::kWarning,
                    "TooSmall", "Reconcile", "does not fit");
  std::vector<Json> events;
  ASSERT_TRUE(client_
                  ->List(kube::kEvent, {.space = kSpace},
                         [&](Json& event) {
                           if (event["regarding"]["uid"] == uid)
                             events.push_back(event);
                         })
                  .ok());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["series"]["count"], 4);
  EXPECT_EQ(events[0]["reason"], "TooSmall");
}

TEST_P(ClientContractTest, LeadersAreElectedAndFollowed) {
  const std::string name = fmt::format("lease-{:x}", SystemRandom64());
  Notification a_leads, b_leads;
  const auto options = [&](std::string_view identity) {
    return runtime::LeaderElectorOptions{
        .lease = {kSpace, name}, .identity = runtime::UniqueIdentity(identity)};
  };
  runtime::LeaderElector a(options("a"), *client_, Clock::Monotonic(), 1,
                           {.started = [&](uint64_t) { a_leads.Notify(); }});
  runtime::LeaderElector b(options("b"), *client_, Clock::Monotonic(), 2,
                           {.started = [&](uint64_t) { b_leads.Notify(); }});
  a.Start();
  ASSERT_TRUE(a_leads.WaitFor(minutes(1)));
  const uint64_t term = *a.Term();
  b.Start();
  // Renewals are taken, too.
  const auto before = client_->Get(kube::kLease, {kSpace, name});
  const TimePoint end = Clock::Monotonic().Now() + minutes(1);
  while (VersionOf(*client_->Get(kube::kLease, {kSpace, name})) ==
         VersionOf(*before)) {
    ASSERT_LT(Clock::Monotonic().Now(), end);
    std::this_thread::yield();
  }
  EXPECT_TRUE(a.IsLeading());
  a.Stop();
  ASSERT_TRUE(b_leads.WaitFor(minutes(1)));
  EXPECT_EQ(*b.Term(), term + 1);
  b.Stop();
}

class RealApiServerTest : public ClientContractTest {};
INSTANTIATE_TEST_SUITE_P(Real, RealApiServerTest,
                         ::testing::Values(Kind::kReal));

TEST_P(RealApiServerTest, AVersionOfLongAgoIsTooOld) {
  ASSERT_TRUE(Apply("a", {{"replicas", 1}}).ok());
  const Status ended =
      client_->Watch(kGadget, {.space = kSpace, .resource_version = "1"},
                     [](WatchEvent&) { return true; });
  EXPECT_EQ(ended.code(), Code::kOutOfRange) << ended;
}

TEST_P(RealApiServerTest, AWrongTokenIsRefused) {
  kube::ClientConfig config = real_server->config();
  config.token = "wrong";
  const auto client = *kube::HttpClient::Create(config);
  EXPECT_EQ(client->Get(kGadget, kA).status().code(), Code::kUnauthenticated);
}

TEST_P(RealApiServerTest, AnInformerSurvivesTheServersRestart) {
  ASSERT_TRUE(Apply("a", {{"replicas", 1}}).ok());
  runtime::Informer<Json> gadgets(
      {.type = kGadget, .space = kSpace},
      [](const Json& object) -> StatusOr<Json> { return object; });
  gadgets.Start(*client_);
  ASSERT_TRUE(gadgets.WaitForSync(minutes(1)));
  EXPECT_NE(gadgets.Get(kA), nullptr);
  real_server->Kill();
  ASSERT_TRUE(real_server->Restart().ok());
  AwaitServed();
  ASSERT_TRUE(client_->Delete(kGadget, kA).ok());
  ASSERT_TRUE(Apply("b", {{"replicas", 1}}).ok());
  const TimePoint end = Clock::Monotonic().Now() + minutes(1);
  while (gadgets.Get(kA) != nullptr || gadgets.Get({kSpace, "b"}) == nullptr) {
    ASSERT_LT(Clock::Monotonic().Now(), end);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  gadgets.Stop();
}

}  // namespace
}  // namespace tidepool::fakes
