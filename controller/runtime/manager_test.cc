#include "controller/runtime/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <set>
#include <string>

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "controller/runtime/leading_client.h"
#include "dataplane/base/notification.h"
#include "dataplane/base/socket_address.h"
#include "tests/fakes/api_server.h"
#include "tests/fakes/faulty_client.h"

namespace tidepool::runtime {
namespace {

using kube::Json;
using kube::ObjectKey;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const ObjectKey kKey{"space", "a"};

class Scripted : public Reconciler {
 public:
  StatusOr<Result> Reconcile(const ObjectKey& key) override {
    calls.fetch_add(1);
    return act(key);
  }
  std::function<StatusOr<Result>(const ObjectKey&)> act;
  std::atomic<int> calls = 0;
};

class ControllerLoopTest : public ::testing::Test {
 protected:
  ManualClock clock_;
  Scripted reconciler_;
  ControllerLoop loop_{{.name = "Thing"}, reconciler_, clock_};
};

TEST_F(ControllerLoopTest, RequeuesAsTheResultSays) {
  reconciler_.act = [](const ObjectKey&) {
    return Result{.requeue_after = seconds(30)};
  };
  loop_.queue().Add(kKey);
  EXPECT_TRUE(loop_.RunOne());
  EXPECT_FALSE(loop_.RunOne());
  clock_.Advance(seconds(30));
  EXPECT_TRUE(loop_.RunOne());
}

TEST_F(ControllerLoopTest, RetriesErrorsAndExceptionsWithBackoffUntilSuccess) {
  std::vector<Code> seen;
  loop_.set_observer(
      [&](const Status& status, Duration) { seen.push_back(status.code()); });
  int call = 0;
  reconciler_.act = [&](const ObjectKey&) -> StatusOr<Result> {
    if (++call == 1) return Unavailable("away");
    if (call == 2) (void)Json::object().at("none");
    return Result::Done();
  };
  loop_.queue().Add(kKey);
  EXPECT_TRUE(loop_.RunOne());
  EXPECT_FALSE(loop_.RunOne());
  EXPECT_EQ(loop_.queue().failures(kKey), 1u);
  clock_.Advance(seconds(1));
  EXPECT_TRUE(loop_.RunOne());
  EXPECT_EQ(loop_.queue().failures(kKey), 2u);
  clock_.Advance(seconds(1));
  EXPECT_TRUE(loop_.RunOne());
  EXPECT_EQ(loop_.queue().failures(kKey), 0u);
  EXPECT_TRUE(loop_.queue().idle());
  EXPECT_EQ(seen, (std::vector<Code>{Code::kUnavailable, Code::kInternal,
                                     Code::kOk}));
}

TEST_F(ControllerLoopTest, APausedLoopKeepsItsKeys) {
  Notification called;
  reconciler_.act = [&](const ObjectKey&) {
    called.Notify();
    return Result::Done();
  };
  ControllerLoop loop({.name = "Thing"}, reconciler_, Clock::Monotonic());
  loop.queue().Add(kKey);
  loop.Start([] { return true; });
  EXPECT_EQ(reconciler_.calls, 0);
  loop.Resume();
  ASSERT_TRUE(called.WaitFor(minutes(1)));
  loop.Stop();
  EXPECT_EQ(reconciler_.calls, 1);
}

TEST_F(ControllerLoopTest, KnowsWhenItsOldestCallBegan) {
  clock_.Advance(seconds(7));
  reconciler_.act = [&](const ObjectKey&) {
    EXPECT_EQ(loop_.oldest_call(), clock_.Now());
    return Result::Done();
  };
  EXPECT_EQ(loop_.oldest_call(), TimePoint::max());
  loop_.queue().Add(kKey);
  EXPECT_TRUE(loop_.RunOne());
  EXPECT_EQ(loop_.oldest_call(), TimePoint::max());
}

TEST(LeadingClientTest, WritesOnlyWhileLeading) {
  fakes::ApiServer server;
  bool leading = true;
  LeadingClient client(server, [&] { return leading; });
  Json object = kube::Skeleton(kube::kConfigMap, kKey);
  object["data"] = {{"a", "1"}};
  ASSERT_TRUE(client.Apply(kube::kConfigMap, kKey, object, "").ok());
  leading = false;
  const auto cancelled = [](const Status& status) {
    return status.code() == Code::kCancelled;
  };
  EXPECT_TRUE(
      cancelled(client.Apply(kube::kConfigMap, kKey, object, "").status()));
  EXPECT_TRUE(
      cancelled(client.Create(kube::kConfigMap, "space", object).status()));
  EXPECT_TRUE(
      cancelled(client.Replace(kube::kConfigMap, kKey, object, "").status()));
  EXPECT_TRUE(cancelled(
      client.Patch(kube::kConfigMap, kKey, kube::PatchType::kMerge, object, "")
          .status()));
  EXPECT_TRUE(cancelled(client.Delete(kube::kConfigMap, kKey, {})));
  EXPECT_TRUE(client.Get(kube::kConfigMap, kKey).ok());
  EXPECT_EQ(server.changes(kube::kConfigMap), 1u);
}

// The answer to a GET of `path`.
std::string Probe(uint16_t port, const std::string& path) {
  const auto address = *ResolveAddress("127.0.0.1", port);
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(connect(fd.get(), address.raw(), address.length), 0);
  const std::string text = "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
  (void)!send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;)
    answer.append(buffer, static_cast<size_t>(got));
  return answer;
}

// A controller that copies each ConfigMap into a Secret.
struct Copier : Reconciler {
  Copier(kube::Client& to, Informer<Json>& from) : client(to), maps(from) {}

  StatusOr<Result> Reconcile(const ObjectKey& key) override {
    if (maps.Get(key) == nullptr) return Result::Done();
    RETURN_IF_ERROR(
        client.Apply(kube::kSecret, key, kube::Skeleton(kube::kSecret, key), "")
            .status());
    return Result::Done();
  }
  kube::Client& client;
  Informer<Json>& maps;
};

struct Controller {
  explicit Controller(kube::Client& api, bool elect = true)
      : manager({.election = {.lease = {"space", "lease"},
                              .identity = UniqueIdentity("c")},
                 .elect = elect,
                 .health_host = "127.0.0.1",
                 .health_port = 0},
                api, api),
        client(api, [this] { return manager.IsLeading(); }),
        maps({.type = kube::kConfigMap},
             [](const Json& object) -> StatusOr<Json> { return object; }),
        copier(client, maps),
        loop({.name = "ConfigMap"}, copier, Clock::Monotonic()) {
    maps.AddHandler([this](const ObjectKey& key, const Json*, const Json*) {
      loop.queue().Add(key);
    });
    manager.Add(maps);
    manager.Add(loop, [this] { return maps.Keys(); });
    manager.AddGauge("test_level", "Of the leader.", [] { return 7.5; });
    manager.AddGauge("test_absent", "Not there.", [] { return std::nullopt; });
  }

  Manager manager;
  LeadingClient client;
  Informer<Json> maps;
  Copier copier;
  ControllerLoop loop;
};

void AwaitSecret(fakes::ApiServer& server, const ObjectKey& key) {
  const TimePoint end = Clock::Monotonic().Now() + minutes(1);
  while (!server.Get(kube::kSecret, key).ok()) {
    ASSERT_LT(Clock::Monotonic().Now(), end) << key.ToString();
    std::this_thread::yield();
  }
}

void Make(fakes::ApiServer& server, const ObjectKey& key) {
  ASSERT_TRUE(server
                  .Create(kube::kConfigMap, key.space,
                          kube::Skeleton(kube::kConfigMap, key))
                  .ok());
}

TEST(ManagerTest, TheLeaderReconcilesAndHandsOver) {
  fakes::ApiServer server;
  Make(server, {"space", "before"});
  auto first = std::make_unique<Controller>(server);
  ASSERT_TRUE(first->manager.Start().ok());
  AwaitSecret(server, {"space", "before"});
  Controller second(server);
  ASSERT_TRUE(second.manager.Start().ok());
  ASSERT_TRUE(second.maps.WaitForSync(minutes(1)));
  Make(server, {"space", "during"});
  AwaitSecret(server, {"space", "during"});
  EXPECT_FALSE(second.manager.IsLeading());
  const uint64_t term = *first->manager.Term();
  EXPECT_THAT(Probe(second.manager.health_port(), "/readyz"), HasSubstr("200"));
  EXPECT_THAT(Probe(first->manager.health_port(), "/metrics"),
              HasSubstr("tidepool_controller_reconciles_total{code=\"OK\",kind="
                        "\"ConfigMap\"}"));
  EXPECT_THAT(first->manager.Metrics(),
              AllOf(HasSubstr("test_level 7.5"), Not(HasSubstr("absent"))));
  EXPECT_THAT(second.manager.Metrics(), Not(HasSubstr("test_level")));
  first.reset();
  Make(server, {"space", "after"});
  AwaitSecret(server, {"space", "after"});
  EXPECT_GT(*second.manager.Term(), term);
  // All keys come with the new term, and change nothing.
  EXPECT_EQ(server.changes(kube::kSecret), 3u);
  second.manager.Stop();
}

TEST(ManagerTest, WhoIsElectedLeadsInNoLesserTermThanWhoWasNot) {
  fakes::ApiServer server;
  Make(server, {"space", "before"});
  uint64_t term = 0;
  {
    Controller alone(server, /*elect=*/false);
    ASSERT_TRUE(alone.manager.Start().ok());
    AwaitSecret(server, {"space", "before"});
    term = *alone.manager.Term();
  }
  Controller elected(server);
  ASSERT_TRUE(elected.manager.Start().ok());
  Make(server, {"space", "after"});
  AwaitSecret(server, {"space", "after"});
  EXPECT_GE(*elected.manager.Term(), term);
}

TEST(ManagerTest, IsNotReadyBeforeItHasListed) {
  fakes::ApiServer server;
  fakes::FaultyClient client(server, 1);
  client.Cut();
  Controller controller(client);
  ASSERT_TRUE(controller.manager.Start().ok());
  const uint16_t port = controller.manager.health_port();
  EXPECT_THAT(Probe(port, "/readyz"), HasSubstr("configmaps"));
  EXPECT_THAT(Probe(port, "/healthz"), HasSubstr("200 OK"));
  EXPECT_THAT(Probe(port, "/"), HasSubstr("404"));
  client.Revive();
  ASSERT_TRUE(controller.maps.WaitForSync(minutes(1)));
  EXPECT_THAT(Probe(port, "/readyz"), HasSubstr("200 OK"));
}

}  // namespace
}  // namespace tidepool::runtime
