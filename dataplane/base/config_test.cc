#include "dataplane/base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Config {
  std::string model = "demo", dtype = "auto";
  int64_t port = 8000;
  double rate = 1.5;
  bool no_auth = false;
  std::vector<std::string> workers;
  uint64_t memory = 1024;
};

class OptionSetTest : public ::testing::Test {
 protected:
  OptionSetTest() {
    options_.AddString("model", config_.model, "the model");
    options_.AddChoice("dtype", config_.dtype, {"auto", "float32"}, "type");
    options_.AddInt("port", config_.port, {0, 65535}, "port");
    options_.AddDouble("rate", config_.rate, {0, 10}, "rate");
    options_.AddBool("no-auth", config_.no_auth, "open");
    options_.AddStrings("worker", config_.workers, "workers");
    options_.AddBytes("memory", config_.memory, {1, 1 << 30}, "memory");
  }

  StatusOr<OptionSet::Outcome> Parse(std::vector<const char*> args) {
    args.insert(args.begin(), "program");
    return options_.Parse(static_cast<int>(args.size()), args.data());
  }
  std::string ErrorOf(std::vector<const char*> args) {
    const auto outcome = Parse(std::move(args));
    return outcome.ok() ? "OK" : std::string(MessageOf(outcome.status()));
  }
  std::string WriteFile(const std::string& text) {
    const std::string path = ::testing::TempDir() + "/options.yaml";
    std::ofstream(path) << text;
    return path;
  }

  Config config_;
  OptionSet options_{"program", "Does things."};
};

TEST_F(OptionSetTest, FlagsOfEveryKind) {
  ASSERT_TRUE(Parse({"--model", "m", "--port=1", "--rate", "2", "--no-auth",
                     "--worker", "a", "--worker=b", "--memory", "2Ki"})
                  .ok());
  EXPECT_EQ(config_.model, "m");
  EXPECT_EQ(config_.port, 1);
  EXPECT_EQ(config_.rate, 2);
  EXPECT_TRUE(config_.no_auth);
  EXPECT_THAT(config_.workers, ElementsAre("a", "b"));
  EXPECT_EQ(config_.memory, 2048u);
}

TEST_F(OptionSetTest, AFlagWinsOverTheFile) {
  const std::string path =
      WriteFile("model: y\nport: 9\nworker: [a, b]\nno-auth: true\n");
  ASSERT_TRUE(Parse({"--config", path.c_str(), "--port", "7"}).ok());
  EXPECT_EQ(config_.port, 7);
  EXPECT_EQ(config_.model, "y");
  EXPECT_TRUE(config_.no_auth);
  EXPECT_THAT(config_.workers, ElementsAre("a", "b"));
}

TEST_F(OptionSetTest, BoolTakesFalse) {
  config_.no_auth = true;
  ASSERT_TRUE(Parse({"--no-auth=false"}).ok());
  EXPECT_FALSE(config_.no_auth);
}

TEST_F(OptionSetTest, ABareFlagTakesNothingOfWhatFollows) {
  std::vector<std::string> texts;
  options_.AddPositional("TEXT", texts, 1, "text");
  ASSERT_TRUE(Parse({"--no-auth", "some text"}).ok());
  EXPECT_TRUE(config_.no_auth);
  EXPECT_THAT(texts, ElementsAre("some text"));
  EXPECT_THAT(ErrorOf({"a", "b"}), HasSubstr("b"));
}

TEST_F(OptionSetTest, BadFlagsAreNamed) {
  EXPECT_THAT(ErrorOf({"--prot", "1"}), HasSubstr("--prot"));
  EXPECT_THAT(ErrorOf({"stray"}), HasSubstr("stray"));
  // The caller says who speaks.
  EXPECT_THAT(ErrorOf({"--prot", "1"}), Not(StartsWith("program")));
  EXPECT_THAT(ErrorOf({"--port", "70000"}), HasSubstr("--port: 70000"));
  EXPECT_THAT(ErrorOf({"--port", "x"}), HasSubstr("--port: `x`"));
  EXPECT_THAT(ErrorOf({"--port", "1", "--port", "2"}), HasSubstr("once"));
  EXPECT_THAT(ErrorOf({"--no-auth=maybe"}), HasSubstr("--no-auth"));
  EXPECT_THAT(ErrorOf({"--rate", "nan"}), HasSubstr("--rate"));
  EXPECT_THAT(ErrorOf({"--dtype", "int4"}), HasSubstr("auto|float32"));
  EXPECT_THAT(ErrorOf({"--memory", "2Zi"}), HasSubstr("--memory"));
  EXPECT_THAT(ErrorOf({"--memory", "much"}), HasSubstr("--memory: `much`"));
  EXPECT_THAT(ErrorOf({"--memory", "99999999Ti"}), HasSubstr("out of range"));
}

TEST_F(OptionSetTest, BadFilesAreNamedWithTheLine) {
  const auto error_of_file = [&](const std::string& text) {
    return ErrorOf({"--config", WriteFile(text).c_str()});
  };
  EXPECT_THAT(error_of_file("model: a\nprot: 1\n"), HasSubstr(":2: prot"));
  EXPECT_THAT(error_of_file("port: [1]\n"), HasSubstr("single value"));
  EXPECT_THAT(error_of_file("worker: a\n"), HasSubstr("a list"));
  EXPECT_THAT(error_of_file("port: 1\nport: 2\n"), HasSubstr("twice"));
  EXPECT_THAT(error_of_file("- a\n"), HasSubstr("not a map"));
  EXPECT_THAT(error_of_file("port: ["), HasSubstr("options.yaml"));
  EXPECT_THAT(ErrorOf({"--config", "/does/not/exist"}),
              HasSubstr("cannot read"));
  EXPECT_THAT(ErrorOf({"--config", ::testing::TempDir().c_str()}),
              HasSubstr("is a folder"));
}

TEST_F(OptionSetTest, EffectiveMasksSecrets) {
  std::string key = "s3cret", key_file = "keys";
  std::vector<std::string> keys = {"s3cret", "s4cret"};
  int64_t tokens = 5;
  options_.AddString("hub-token", key, "key");
  options_.AddStrings("api-key", keys, "keys");
  options_.AddString("api-key-file", key_file, "file");
  options_.AddInt("max-tokens", tokens, {0, 9}, "tokens");
  EXPECT_THAT(options_.Effective(), Not(HasSubstr("cret")));
  EXPECT_THAT(options_.Help(), Not(HasSubstr("cret")));
  EXPECT_THAT(options_.Effective(), HasSubstr("api-key: [\"***\", \"***\"]"));
  EXPECT_THAT(options_.Effective(), HasSubstr("api-key-file: keys"));
  EXPECT_THAT(options_.Effective(), HasSubstr("max-tokens: 5"));
  EXPECT_THAT(options_.Effective(), HasSubstr("port: 8000"));
}

TEST_F(OptionSetTest, WhatIsPrintedIsAConfigFile) {
  config_.model = "";
  config_.workers = {"d=[::1]:80", "a: b"};
  const std::string path = WriteFile(options_.Effective());
  config_.workers = {};
  const auto outcome = Parse({"--config", path.c_str()});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(config_.model, "");
  EXPECT_THAT(config_.workers, ElementsAre("d=[::1]:80", "a: b"));
}

}  // namespace
}  // namespace tidepool
