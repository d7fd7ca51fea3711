#include "controller/kube/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "controller/kube/resource_types.h"
#include "controller/kube/test_server.h"
#include "controller/kube/writes.h"
#include "dataplane/base/file.h"
#include "dataplane/base/notification.h"

namespace tidepool::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::MakeCertificate;
using testing::TestCertificate;
using testing::TestRequest;
using testing::TestServer;
using Connection = testing::TestServer::Connection;
using ::testing::EndsWith;
using ::testing::HasSubstr;

const ObjectKey kKey{"space", "a"};

std::string StatusBody(int code, const std::string& reason) {
  return Json({{"kind", "Status"},
               {"code", code},
               {"reason", reason},
               {"message", "it said " + reason}})
      .dump();
}

// What the server was asked, for one answer per request.
class HttpClientTest : public ::testing::Test {
 protected:
  // The server's threads use what tests and fixtures hold.
  void TearDown() override {
    client_.reset();
    server_.reset();
  }

  void Serve(TestServer::Handler handler) {
    server_ = std::make_unique<TestServer>(std::move(handler));
    client_ = Connect({.server = server_->url()});
  }
  void ServeAnswer(int code, const std::string& body,
                   const std::string& headers = "") {
    Serve([=, this](const TestRequest& request, Connection& connection) {
      {
        const MutexLock lock(&mutex_);
        asked_ = request;
      }
      return connection.Answer(code, body, headers);
    });
  }
  std::unique_ptr<HttpClient> Connect(const ClientConfig& config) {
    auto client = HttpClient::Create(config, options_);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  TestRequest Asked() {
    const MutexLock lock(&mutex_);
    return asked_;
  }

  HttpClientOptions options_;
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<HttpClient> client_;
  Mutex mutex_;
  TestRequest asked_;
};

TEST_F(HttpClientTest, AsksAsTheApiWants) {
  ServeAnswer(200, R"({"kind":"Pod"})");
  EXPECT_EQ((*client_->Get(kPod, kKey))["kind"], "Pod");
  EXPECT_EQ(Asked().method, "GET");
  EXPECT_EQ(Asked().target, "/api/v1/namespaces/space/pods/a");

  const Json object = Skeleton(kPrefillPool, kKey);
  ASSERT_TRUE(client_->Apply(kPrefillPool, kKey, object, "status").ok());
  EXPECT_EQ(Asked().method, "PATCH");
  EXPECT_EQ(Asked().target,
            "/apis/tidepool.dev/v1alpha1/namespaces/space/prefillpools/a/status"
            "?fieldManager=tidepool-controller&force=true");
  EXPECT_THAT(Asked().head,
              HasSubstr("Content-Type: application/apply-patch+yaml"));
  EXPECT_EQ(Json::parse(Asked().body), object);

  ASSERT_TRUE(client_->Create(kPrefillPool, "space", object).ok());
  EXPECT_EQ(Asked().method, "POST");
  ASSERT_TRUE(client_->Replace(kPrefillPool, kKey, object).ok());
  EXPECT_EQ(Asked().method, "PUT");
  ASSERT_TRUE(Scale(*client_, kStatefulSet, kKey, 3).ok());
  EXPECT_THAT(Asked().target, HasSubstr("statefulsets/a/scale?"));
  EXPECT_THAT(Asked().head, HasSubstr("application/merge-patch+json"));
  ASSERT_TRUE(client_->Patch(kPod, kKey, PatchType::kJson, Json::array()).ok());
  EXPECT_THAT(Asked().head, HasSubstr("application/json-patch+json"));
  ASSERT_TRUE(
      client_->Delete(kPod, kKey, {.uid = "u", .grace_period_seconds = 0})
          .ok());
  EXPECT_EQ(Asked().method, "DELETE");
  const Json deletion = Json::parse(Asked().body);
  EXPECT_EQ(deletion["preconditions"]["uid"], "u");
  EXPECT_EQ(deletion["gracePeriodSeconds"], 0);
  EXPECT_EQ(deletion["propagationPolicy"], "Background");
  EXPECT_EQ(server_->connections(), 1) << "the connection is kept";
}

// A message of somebody else's, cut in the middle of a character or of another
// encoding.
TEST_F(HttpClientTest, WritesTextThatIsNoUtf8) {
  ServeAnswer(200, "{}");
  Json object = Skeleton(kPrefillPool, kKey);
  object["status"]["message"] = "caf\xc3";
  ASSERT_TRUE(client_->Apply(kPrefillPool, kKey, object, "status").ok());
  EXPECT_EQ(Json::parse(Asked().body)["status"]["message"], "caf\xef\xbf\xbd");
  ASSERT_TRUE(client_->Patch(kPod, kKey, PatchType::kMerge, object).ok());
  ASSERT_TRUE(client_->Create(kPrefillPool, "space", object).ok());
  ASSERT_TRUE(client_->Replace(kPrefillPool, kKey, object).ok());
}

TEST_F(HttpClientTest, EscapesWhatItPutsIntoPaths) {
  ServeAnswer(200, "{}");
  ASSERT_TRUE(client_->Get(kPod, {"space", "a/../b?c"}).ok());
  EXPECT_EQ(Asked().target, "/api/v1/namespaces/space/pods/a%2F..%2Fb%3Fc");
  ASSERT_TRUE(client_->Get(kPod, {"..", "x"}).ok());
  EXPECT_EQ(Asked().target, "/api/v1/namespaces/%2E%2E/pods/x");
}

TEST_F(HttpClientTest, TellsErrorsByTheirCode) {
  const std::vector<std::tuple<int, std::string, Code>> cases = {
      {400, "BadRequest", Code::kInvalidArgument},
      {401, "Unauthorized", Code::kUnauthenticated},
      {403, "Forbidden", Code::kPermissionDenied},
      {404, "NotFound", Code::kNotFound},
      {409, "AlreadyExists", Code::kAlreadyExists},
      {409, "Conflict", Code::kAborted},
      {410, "Expired", Code::kOutOfRange},
      {422, "Invalid", Code::kInvalidArgument},
      {500, "InternalError", Code::kUnavailable},
      {503, "ServiceUnavailable", Code::kUnavailable}};
  for (const auto& [http, reason, code] : cases) {
    ServeAnswer(http, StatusBody(http, reason));
    const Status status = client_->Get(kPod, kKey).status();
    EXPECT_EQ(status.code(), code) << http;
    EXPECT_THAT(std::string(MessageOf(status)),
                HasSubstr("get Pod space/a: it said " + reason));
  }
  ServeAnswer(502, "<html>bad gateway</html>");
  EXPECT_EQ(client_->Get(kPod, kKey).status().code(), Code::kUnavailable);
  ServeAnswer(404, "404 page not found\n");
  EXPECT_THAT(std::string(MessageOf(client_->Get(kPod, kKey).status())),
              EndsWith("get Pod space/a: the cluster has no such kind (404)"));
  ServeAnswer(200, "no json");
  EXPECT_EQ(client_->Get(kPod, kKey).status().code(), Code::kDataLoss);
}

TEST_F(HttpClientTest, NoServerIsUnavailable) {
  client_ = Connect({.server = "http://127.0.0.1:1"});
  EXPECT_EQ(client_->Get(kPod, kKey).status().code(), Code::kUnavailable);
}

TEST_F(HttpClientTest, NoAnswerEndsAtTheDeadline) {
  options_.deadline = milliseconds(50);
  Serve([](const TestRequest&, Connection& connection) {
    connection.AwaitEnd();
    return false;
  });
  EXPECT_EQ(client_->Get(kPod, kKey).status().code(), Code::kDeadlineExceeded);
}

TEST_F(HttpClientTest, TooManyRequestsAreTriedAgainWithinBounds) {
  std::atomic<int> asked = 0;
  Serve([&](const TestRequest&, Connection& connection) {
    if (asked.fetch_add(1) < 2)
      return connection.Answer(429, "{}", "Retry-After: 0\r\n");
    return connection.Answer(200, "{}");
  });
  EXPECT_TRUE(client_->Get(kPod, kKey).ok());
  EXPECT_EQ(asked, 3);
  asked = -100;
  EXPECT_EQ(client_->Get(kPod, kKey).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(asked, -96);
  // Longer than the deadline: not waited for at all.
  ServeAnswer(429, "{}", "retry-after: 3600\r\n");
  EXPECT_EQ(client_->Get(kPod, kKey).status().code(), Code::kResourceExhausted);
}

TEST_F(HttpClientTest, ListsPageByPage) {
  Serve([](const TestRequest& request, Connection& connection) {
    const bool second =
        request.target.find("continue=next") != std::string::npos;
    return connection.Answer(
        200,
        second
            ? R"({"metadata":{"resourceVersion":"9"},"items":[{"n":3}]})"
            : R"({"items":[{"n":1},{"n":2}],"metadata":{"continue":"next"}})");
  });
  std::vector<int> seen;
  const auto version = client_->List(
      kPod, {.label_selector = "a=b", .limit = 2}, [&](Json& object) {
        EXPECT_EQ(object["kind"], "Pod");
        seen.push_back(object["n"]);
      });
  EXPECT_EQ(*version, "9");
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
}

TEST_F(HttpClientTest, AListThatStaysOnItsPageEnds) {
  ServeAnswer(200, R"({"items":[],"metadata":{"continue":"same"}})");
  EXPECT_EQ(client_->List(kPod, {}, [](Json&) {}).status().code(),
            Code::kDataLoss);
}

TEST_F(HttpClientTest, AnExpiredPageIsOutOfRange) {
  Serve([](const TestRequest& request, Connection& connection) {
    if (request.target.find("continue") != std::string::npos)
      return connection.Answer(410, StatusBody(410, "Expired"));
    return connection.Answer(200,
                             R"({"items":[],"metadata":{"continue":"x"}})");
  });
  EXPECT_EQ(client_->List(kPod, {}, [](Json&) {}).status().code(),
            Code::kOutOfRange);
}

constexpr char kAdded[] =
    R"({"type":"ADDED","object":{"metadata":{"resourceVersion":"5"}}})"
    "\n";

TEST_F(HttpClientTest, WatchesUntilTheServerEnds) {
  Serve([&](const TestRequest& request, Connection& connection) {
    {
      const MutexLock lock(&mutex_);
      asked_ = request;
    }
    const std::string line = kAdded;
    connection.Begin();
    connection.Send(line.substr(0, 20));
    connection.Send(line.substr(20) + line);
    return false;
  });
  int seen = 0;
  const Status ended =
      client_->Watch(kPod, {.resource_version = "4"}, [&](WatchEvent& event) {
        EXPECT_EQ(event.type, EventType::kAdded);
        ++seen;
        return true;
      });
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(Asked().target,
            "/api/v1/pods?watch=true&allowWatchBookmarks=true"
            "&resourceVersion=4&timeoutSeconds=300");
}

TEST_F(HttpClientTest, AWatchKnowsErrorsInItsStream) {
  Serve([](const TestRequest&, Connection& connection) {
    connection.Begin();
    connection.Send(R"({"type":"ERROR","object":)" +
                    StatusBody(410, "Expired") + "}\n");
    return false;
  });
  EXPECT_EQ(client_
                ->Watch(kPod, {.resource_version = "4"},
                        [](WatchEvent&) { return true; })
                .code(),
            Code::kOutOfRange);
}

class WatchedForever : public HttpClientTest {
 protected:
  WatchedForever() {
    options_.object_bytes_max = 1000;
    Serve([this](const TestRequest&, Connection& connection) {
      connection.Begin();
      connection.Send(text_);
      connection.AwaitEnd();
      return false;
    });
  }
  std::string text_ = kAdded;
};

TEST_F(WatchedForever, EndsWhenItsTakerHasEnough) {
  EXPECT_EQ(client_
                ->Watch(kPod, {.resource_version = "4"},
                        [](WatchEvent&) { return false; })
                .code(),
            Code::kCancelled);
}

TEST_F(WatchedForever, EndsAtOnceWhenStopped) {
  std::stop_source stop;
  Notification seen;
  std::thread stopper([&] {
    seen.Wait();
    stop.request_stop();
  });
  EXPECT_EQ(
      client_
          ->Watch(kPod, {.resource_version = "4", .stop = stop.get_token()},
                  [&](WatchEvent&) {
                    seen.Notify();
                    return true;
                  })
          .code(),
      Code::kCancelled);
  stopper.join();
}

TEST_F(WatchedForever, EndsAfterSilence) {
  EXPECT_EQ(
      client_
          ->Watch(kPod,
                  {.resource_version = "4", .silence_max = milliseconds(50)},
                  [](WatchEvent&) { return true; })
          .code(),
      Code::kDeadlineExceeded);
}

TEST_F(WatchedForever, EndsAtALineBeyondTheBound) {
  text_ = std::string(1001, ' ');
  EXPECT_EQ(client_
                ->Watch(kPod, {.resource_version = "4"},
                        [](WatchEvent&) { return true; })
                .code(),
            Code::kResourceExhausted);
}

TEST_F(WatchedForever, AnExceptionOfItsTakerEndsIt) {
  EXPECT_EQ(client_
                ->Watch(kPod, {.resource_version = "4"},
                        [](WatchEvent& event) {
                          (void)event.object.at("none");
                          return true;
                        })
                .code(),
            Code::kInternal);
}

TEST_F(HttpClientTest, EveryCallIsRecorded) {
  std::vector<std::pair<std::string, Code>> records;
  options_.on_call = [&](const CallRecord& record) {
    records.emplace_back(record.verb, record.code);
  };
  ServeAnswer(404, "{}");
  (void)client_->Get(kPod, kKey);
  (void)client_->List(kPod, {}, [](Json&) {});
  EXPECT_EQ(records, (std::vector<std::pair<std::string, Code>>{
                         {"get", Code::kNotFound}, {"list", Code::kNotFound}}));
}

TEST_F(HttpClientTest, NoProxyUnlessConfigured) {
  ASSERT_EQ(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
  ServeAnswer(200, "{}");
  EXPECT_TRUE(client_->Get(kPod, kKey).ok());
  ASSERT_EQ(unsetenv("http_proxy"), 0);
  client_ =
      Connect({.server = "http://api.invalid", .proxy_url = server_->url()});
  EXPECT_TRUE(client_->Get(kPod, kKey).ok());
  EXPECT_EQ(Asked().target,
            "http://api.invalid/api/v1/namespaces/space/pods/a");
}

TEST_F(HttpClientTest, RefusesConfigurationsThatCannotWork) {
  const auto refused = [](const ClientConfig& config) {
    return HttpClient::Create(config).status().code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.server = ""}));
  EXPECT_TRUE(refused({.server = "ftp://x"}));
  EXPECT_TRUE(refused({.server = "http://x", .token = "secret"}));
}

class TlsTest : public HttpClientTest {
 protected:
  static void SetUpTestSuite() {
    own_ = new TestCertificate(MakeCertificate("IP:127.0.0.1"));
  }
  static void TearDownTestSuite() { delete own_; }

  static inline TestCertificate* own_ = nullptr;
};

TEST_F(TlsTest, TrustsTheGivenAuthorityAlone) {
  const TestCertificate other = MakeCertificate("IP:127.0.0.1");
  TestServer server(
      [](const TestRequest&, Connection& c) { return c.Answer(200, "{}"); },
      own_);
  const auto get = [&](const ClientConfig& config) {
    return Connect(config)->Get(kPod, kKey).status().code();
  };
  EXPECT_EQ(get({.server = server.url(), .ca_pem = own_->certificate_pem}),
            Code::kOk);
  EXPECT_EQ(get({.server = server.url(), .ca_pem = other.certificate_pem}),
            Code::kUnavailable);
  EXPECT_EQ(get({.server = server.url()}), Code::kUnavailable);
  EXPECT_EQ(get({.server = server.url(), .insecure_skip_tls_verify = true}),
            Code::kOk);
  const std::string by_name =
      fmt::format("https://localhost:{}", server.port());
  EXPECT_EQ(get({.server = by_name, .ca_pem = own_->certificate_pem}),
            Code::kUnavailable);
}

TEST_F(TlsTest, ReadsTheAuthorityAgainForANewConnection) {
  const std::string path = ::testing::TempDir() + "/rotating-ca.crt";
  const auto write = [&](const std::string& pem) {
    ASSERT_TRUE(WriteFileAtomically(path, pem).ok());
  };
  write(MakeCertificate("IP:127.0.0.1").certificate_pem);
  TestServer server(
      [](const TestRequest&, Connection& c) { return c.Answer(200, "{}"); },
      own_);
  const auto client = Connect({.server = server.url(), .ca_file = path});
  EXPECT_EQ(client->Get(kPod, kKey).status().code(), Code::kUnavailable);
  write(own_->certificate_pem);
  EXPECT_TRUE(client->Get(kPod, kKey).ok());
  std::filesystem::remove(path);
}

TEST_F(TlsTest, ExpectsTheNameItIsTold) {
  const TestCertificate named = MakeCertificate("DNS:api.cluster");
  TestServer server(
      [](const TestRequest&, Connection& c) { return c.Answer(200, "{}"); },
      &named);
  ClientConfig config{.server = server.url(),
                      .tls_server_name = "api.cluster",
                      .ca_pem = named.certificate_pem};
  EXPECT_TRUE(Connect(config)->Get(kPod, kKey).ok());
  config.tls_server_name = "other";
  EXPECT_FALSE(Connect(config)->Get(kPod, kKey).ok());
}

TEST_F(TlsTest, ShowsItsCertificate) {
  const TestCertificate mine = MakeCertificate("DNS:me");
  TestServer server(
      [](const TestRequest&, Connection& c) { return c.Answer(200, "{}"); },
      own_, mine.certificate_pem);
  ClientConfig config{.server = server.url(), .ca_pem = own_->certificate_pem};
  EXPECT_FALSE(Connect(config)->Get(kPod, kKey).ok());
  config.client_certificate_pem = mine.certificate_pem;
  config.client_key_pem = mine.key_pem;
  EXPECT_TRUE(Connect(config)->Get(kPod, kKey).ok());
}

TEST_F(TlsTest, ReadsItsTokenAgainWhenItIsRefused) {
  const std::string path = ::testing::TempDir() + "kube_http_client_token";
  ASSERT_TRUE(WriteFileAtomically(path, "old\n").ok());
  std::atomic<int> refused = 0;
  TestServer server(
      [&](const TestRequest& request, Connection& connection) {
        if (request.head.find("Authorization: Bearer new") != std::string::npos)
          return connection.Answer(200, "{}");
        refused.fetch_add(1);
        return connection.Answer(401, "{}");
      },
      own_);
  client_ = Connect({.server = server.url(),
                     .ca_pem = own_->certificate_pem,
                     .token_file = path});
  EXPECT_EQ(client_->Get(kPod, kKey).status().code(), Code::kUnauthenticated);
  EXPECT_EQ(refused, 1) << "the same token is not tried twice";
  ASSERT_TRUE(WriteFileAtomically(path, "new\n").ok());
  EXPECT_TRUE(client_->Get(kPod, kKey).ok());
  EXPECT_EQ(refused, 2);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tidepool::kube
