#include "controller/kube/client_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "controller/kube/token_source.h"
#include "dataplane/base/file.h"

namespace tidepool::kube {
namespace {

using ::testing::HasSubstr;

class ClientConfigTest : public ::testing::Test {
 protected:
  ClientConfigTest()
      : folder_(
            ::testing::TempDir() + "kube_client_config_test_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
  }
  ~ClientConfigTest() override {
    std::filesystem::remove_all(folder_);
    unsetenv("KUBERNETES_SERVICE_HOST");
    unsetenv("KUBERNETES_SERVICE_PORT");
    unsetenv("KUBECONFIG");
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    return path;
  }
  // A kubeconfig whose user has `user` and whose cluster has `cluster` as well.
  StatusOr<ClientConfig> Load(const std::string& user,
                              const std::string& cluster = "") {
    const std::string path = Write(
        "config",
        fmt::format("current-context: c\n"
                    "contexts: [{{name: c, context: {{cluster: k, user: u, "
                    "namespace: n}}}}]\n"
                    "clusters: [{{name: k, cluster: {{server: "
                    "'https://api:6443'{}}}}}]\n"
                    "users: [{{name: u, user: {{{}}}}}]\n",
                    cluster.empty() ? "" : ", " + cluster, user));
    return LoadKubeconfig({.path = path});
  }
  void ExpectBad(const StatusOr<ClientConfig>& config,
                 const std::string& what) {
    EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(MessageOf(config.status())), HasSubstr(what));
    EXPECT_THAT(std::string(MessageOf(config.status())), HasSubstr(folder_));
  }

  const std::string folder_;
};

TEST_F(ClientConfigTest, TakesDataFromTheFileItself) {
  const auto config =
      Load("client-certificate-data: Y2VydA==, client-key-data: a2V5",
           "certificate-authority-data: Y2E=, tls-server-name: api.name");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://api:6443");
  EXPECT_EQ(config->space, "n");
  EXPECT_EQ(config->ca_pem, "ca");
  EXPECT_EQ(config->client_certificate_pem, "cert");
  EXPECT_EQ(config->client_key_pem, "key");
  EXPECT_EQ(config->tls_server_name, "api.name");
  EXPECT_EQ(config->proxy_url, "");
  EXPECT_FALSE(config->insecure_skip_tls_verify);
}

TEST_F(ClientConfigTest, TakesFilesBesideIt) {
  Write("ca.pem", "authority");
  const auto config =
      Load("tokenFile: token, token: fixed", "certificate-authority: ca.pem");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->ca_pem, "authority");
  EXPECT_EQ(config->token_file, folder_ + "/token");
  EXPECT_EQ(config->token, "fixed");
  EXPECT_EQ(Load("token: x", "certificate-authority: none.pem").status().code(),
            Code::kNotFound);
}

TEST_F(ClientConfigTest, ChoosesAnotherContextWhenToldTo) {
  const std::string path = Write("config", R"(
current-context: one
contexts:
- {name: one, context: {cluster: a, user: u}}
- {name: two, context: {cluster: b, user: u}}
clusters:
- {name: a, cluster: {server: "https://a"}}
- {name: b, cluster: {server: "https://b"}}
users:
- {name: u, user: {token: t}}
)");
  EXPECT_EQ(LoadKubeconfig({.path = path})->server, "https://a");
  EXPECT_EQ(LoadKubeconfig({.path = path, .context = "two"})->server,
            "https://b");
  ExpectBad(LoadKubeconfig({.path = path, .context = "three"}),
            "`contexts` has no entry `three`");
}

TEST_F(ClientConfigTest, RefusesByNameWhatItCannotDo) {
  ExpectBad(Load("exec: {command: aws}"), "`user.exec`");
  ExpectBad(Load("auth-provider: {name: gcp}"), "`user.auth-provider`");
  ExpectBad(Load("username: me, password: secret"), "`user.username`");
  ExpectBad(Load("as: somebody"), "`user.as`");
  ExpectBad(Load(R"(token: "x\r\nHost: other")"), "`user.token`");
  ExpectBad(Load("client-key-data: a2V5"), "need each other");
  ExpectBad(Load("client-key-data: '?'"), "`client-key-data` is no base64");
  ExpectBad(Load("token: t", "insecure-skip-tls-verify: maybe"),
            "neither true nor false");
  ExpectBad(Load("token: t",
                 "insecure-skip-tls-verify: true, "
                 "certificate-authority-data: Y2E="),
            "exclude");
}

TEST_F(ClientConfigTest, RefusesWhatIsNoKubeconfig) {
  ExpectBad(LoadKubeconfig({.path = Write("a", "[")}), "a`");
  ExpectBad(LoadKubeconfig({.path = Write("b", "just text")}), "no kubeconfig");
  ExpectBad(LoadKubeconfig({.path = Write("c", "{}")}), "current-context");
  ExpectBad(
      LoadKubeconfig({.path = Write("d", "current-context: x\ncontexts: 7")}),
      "no list");
  EXPECT_EQ(LoadKubeconfig({.path = folder_ + "/none"}).status().code(),
            Code::kNotFound);
}

TEST_F(ClientConfigTest, InsecureOnlyWhenSaid) {
  EXPECT_TRUE(Load("token: t", "insecure-skip-tls-verify: true")
                  ->insecure_skip_tls_verify);
  EXPECT_EQ(Load("token: t", "proxy-url: 'http://proxy:1'")->proxy_url,
            "http://proxy:1");
}

TEST_F(ClientConfigTest, InAPodTakesWhatThePodIsGiven) {
  EXPECT_EQ(InClusterConfig(folder_).status().code(),
            Code::kFailedPrecondition);
  setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
  setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  EXPECT_EQ(InClusterConfig(folder_).status().code(), Code::kNotFound);
  Write("ca.crt", "ca");
  Write("token", "secret");
  Write("namespace", "ns");
  const auto config = InClusterConfig(folder_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://10.0.0.1:443");
  EXPECT_EQ(config->space, "ns");
  EXPECT_EQ(config->ca_file, folder_ + "/ca.crt");
  EXPECT_EQ(config->token_file, folder_ + "/token");
  setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
  EXPECT_EQ(InClusterConfig(folder_)->server, "https://[fd00::1]:443");
}

TEST_F(ClientConfigTest, TheEnvironmentNamesOneFile) {
  ASSERT_TRUE(Load("token: t").ok());
  setenv("KUBECONFIG", (folder_ + "/config").c_str(), 1);
  EXPECT_EQ(DefaultClientConfig("")->token, "t");
  setenv("KUBECONFIG", "a:b", 1);
  EXPECT_EQ(DefaultClientConfig("").status().code(), Code::kInvalidArgument);
}

TEST_F(ClientConfigTest, TokensAreReadAgainEveryMinuteAndWhenRefused) {
  const std::string path = Write("token", "one\n");
  internal::TokenSource tokens({.token_file = path});
  TimePoint now{std::chrono::hours(1)};
  EXPECT_EQ(*tokens.Get(now), "one");
  Write("token", "two");
  EXPECT_EQ(*tokens.Get(now), "one");
  EXPECT_EQ(*tokens.Get(now + std::chrono::minutes(1)), "two");
  EXPECT_FALSE(tokens.Refresh("two", now));
  Write("token", "three");
  EXPECT_TRUE(tokens.Refresh("two", now));
  EXPECT_EQ(*tokens.Get(now), "three");
  EXPECT_TRUE(tokens.Refresh("two", now)) << "another call has read it";
  // A file that is gone for a moment, or half written.
  Write("token", "");
  EXPECT_EQ(*tokens.Get(now + std::chrono::minutes(5)), "three");
  Write("token", "a\r\nHost: evil");
  EXPECT_EQ(*tokens.Get(now + std::chrono::minutes(10)), "three");
}

TEST_F(ClientConfigTest, ATokenFileThatWasNeverReadableIsAnError) {
  internal::TokenSource tokens({.token_file = folder_ + "/none"});
  EXPECT_EQ(tokens.Get(TimePoint()).status().code(), Code::kNotFound);
  EXPECT_EQ(*internal::TokenSource({.token = "t"}).Get(TimePoint()), "t");
}

}  // namespace
}  // namespace tidepool::kube
