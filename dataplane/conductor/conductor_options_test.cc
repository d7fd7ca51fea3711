#include "dataplane/conductor/conductor_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace tidepool::conductor {
namespace {

using testing::HasSubstr;

StatusOr<std::optional<ConductorConfig>> Parse(
    std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tidepool-conductor");
  return ParseConductorOptions(static_cast<int>(arguments.size()),
                               arguments.data());
}

TEST(ConductorOptionsTest, ReadsItsOptions) {
  const auto config = Parse({"--model", "demo", "--worker", "a:1", "--worker",
                             "d=b:2", "--max-body-size", "1Mi",
                             "--body-timeout-ms", "5", "--port", "0"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ((*config)->http.body_bytes_max, 1u << 20);
  EXPECT_EQ((*config)->http.body_timeout, std::chrono::milliseconds(5));
  EXPECT_EQ((*config)->http.host, "127.0.0.1");
  EXPECT_EQ((*config)->workers.size(), 2u);
}

TEST(ConductorOptionsTest, NamesWhatIsMissing) {
  EXPECT_THAT(Parse({"--worker", "a:1"}).status().ToString(),
              HasSubstr("--model"));
  EXPECT_THAT(Parse({"--model", "demo"}).status().ToString(),
              HasSubstr("--worker"));
  EXPECT_THAT(Parse({"--model", "demo", "--worker", "a:1", "--colour", "red"})
                  .status()
                  .ToString(),
              HasSubstr("colour"));
}

TEST(ConductorOptionsTest, ParsesWorkers) {
  const auto named = ParseWorker("decode-0=[::1]:80");
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->name, "decode-0");
  EXPECT_EQ(named->address, "[::1]:80");
  EXPECT_EQ(ParseWorker("host:65535")->name, "host:65535");
  for (const char* text : {"", "host", "host:", ":80", "host:0", "host:65536",
                           "host:8x", "=host:80", "a\"b=host:80", "a b=h:1"})
    EXPECT_FALSE(ParseWorker(text).ok()) << text;
}

TEST(ConductorOptionsTest, WorkersMayBeDiscovered) {
  const auto config = Parse({"--model", "demo", "--discover", "a.b.svc:7000"});
  ASSERT_TRUE(config.ok()) << config.status();
  const auto names = ParseDiscover((*config)->discover);
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(names->at(0).host, "a.b.svc");
  EXPECT_EQ(names->at(0).port, 7000);
  EXPECT_EQ((*config)->control_host, "127.0.0.1");
  for (const char* text : {"", "a", "a:", "a:0", "n=a:1", "[::1]:80", "a b:1"})
    EXPECT_THAT(ParseDiscover({text}).status().ToString(),
                HasSubstr("--discover"))
        << text;
}

TEST(ConductorOptionsTest, AControlHostNeedsAPort) {
  const char* const argv[] = {"tidepool-conductor", "--model", "demo",
                              "--worker",           "h:1",     "--control-host",
                              "127.0.0.1"};
  EXPECT_THAT(ParseConductorOptions(7, argv).status().ToString(),
              HasSubstr("--control-host"));
}

TEST(ConductorOptionsTest, NamesOfWorkersDoNotRepeat) {
  EXPECT_EQ(ParseWorkers({"a=h:1", "b=h:2"})->size(), 2u);
  EXPECT_THAT(ParseWorkers({"a=h:1", "a=h:2"}).status().ToString(),
              HasSubstr("the name a"));
}

TEST(ConductorOptionsTest, WantsKeysBeyondLoopback) {
  ConductorConfig config;
  EXPECT_FALSE(LoadApiKeys(config)->required());
  config.host = "127.1.2.3";
  EXPECT_TRUE(LoadApiKeys(config).ok());
  config.host = "127.example.org";
  EXPECT_FALSE(LoadApiKeys(config).ok());
  config.host = "0.0.0.0";
  EXPECT_THAT(LoadApiKeys(config).status().ToString(),
              HasSubstr("--api-key-file"));
  config.no_auth = true;
  EXPECT_TRUE(LoadApiKeys(config).ok());
  config.no_auth = false;
  config.api_keys = {"k"};
  EXPECT_TRUE(LoadApiKeys(config)->required());
  for (const char* key : {"", " k", "k\t"}) {
    config.api_keys = {key};
    EXPECT_FALSE(LoadApiKeys(config).ok()) << key;
  }
}

TEST(ConductorOptionsTest, ReadsKeysFromAFile) {
  const std::string path = testing::TempDir() + "/conductor_keys";
  std::ofstream(path) << "# comment\n\n first \r\nsecond";
  const auto keys = ApiKeys::ReadFile(path);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_THAT(*keys, testing::ElementsAre("first", "second"));
  const ApiKeys set = *ApiKeys::Create(*keys);
  EXPECT_TRUE(set.Allows("Bearer second"));
  EXPECT_FALSE(
      set.Allows("Bearer second "
                 "x"));
  EXPECT_FALSE(set.Allows("Basic second"));
  EXPECT_FALSE(set.Allows(""));
  std::ofstream(path) << "# none\n";
  EXPECT_FALSE(ApiKeys::ReadFile(path).ok());
  EXPECT_EQ(ApiKeys::ReadFile(path + "-missing").status().code(),
            Code::kNotFound);
}

}  // namespace
}  // namespace tidepool::conductor
