#include "dataplane/base/serving_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct All : ModelOptions, EngineOptions, EdgeOptions, ProcessOptions {};

// One program that takes every group.
struct Program {
  All options;
  OptionSet set{"program", "Serves."};

  Program() {
    AddModelOptions(set, options);
    AddEngineOptions(set, options);
    AddEdgeOptions(set, options);
    AddProcessOptions(set, options);
  }
  Status Parse(std::vector<std::string> arguments) {
    std::vector<const char*> argv = {"program"};
    for (const std::string& argument : arguments)
      argv.push_back(argument.c_str());
    return set.Parse(static_cast<int>(argv.size()), argv.data()).status();
  }
};

TEST(ServingOptionsTest, AChildReadsWhatItsParentWasTold) {
  Program parent;
  ASSERT_TRUE(parent
                  .Parse({"--model", "a: b # \"c\"", "--api-key", "null",
                          "--api-key=- x\n'", "--no-auth", "--kv-cache-memory",
                          "1Gi", "--threads", "3", "--log-level", "off"})
                  .ok());
  const std::string path = ::testing::TempDir() + "/child.yaml";
  Program child;
  std::ofstream(path) << parent.set.ConfigFor(child.set);
  const Status read = child.Parse({"--config", path, "--threads", "2"});
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(child.options.model, "a: b # \"c\"");
  EXPECT_EQ(child.options.download_dir, "");
  EXPECT_THAT(child.options.api_keys, ElementsAre("null", "- x\n'"));
  EXPECT_THAT(child.options.served_model_names, ElementsAre());
  EXPECT_TRUE(child.options.no_auth);
  EXPECT_EQ(child.options.kv_cache_memory, 1u << 30);
  EXPECT_EQ(child.options.threads, 2);
  EXPECT_EQ(child.options.log.level, "off");
}

TEST(ServingOptionsTest, AChildGetsOnlyWhatItKnows) {
  Program parent;
  ModelOptions model;
  OptionSet child("child", "");
  AddModelOptions(child, model);
  EXPECT_EQ(parent.set.ConfigFor(child),
            "model: demo\ndownload-dir: \"\"\nmax-model-len: 0\n");
}

TEST(ServingOptionsTest, OptionsThatContradictEachOtherAreNamed) {
  EXPECT_TRUE(Validate(EngineOptions{}).ok());
  EXPECT_THAT(Validate({.engine = "emulated"}).ToString(),
              HasSubstr("--perf-model"));
  EXPECT_THAT(Validate({.perf_model = "f"}).ToString(),
              HasSubstr("--perf-model"));
  EXPECT_THAT(
      Validate({.engine = "emulated", .perf_model = "f", .kv_cache_memory = 1})
          .ToString(),
      HasSubstr("--kv-cache-memory"));
  EXPECT_THAT(Validate({.page_size = 17}).ToString(), HasSubstr("--page-size"));
  EXPECT_THAT(Validate({.block_size = 96}).ToString(),
              HasSubstr("--block-size"));
  EXPECT_THAT(
      Validate({.max_num_seqs = 9, .max_num_batched_tokens = 8}).ToString(),
      HasSubstr("--max-num-batched-tokens"));
}

}  // namespace
}  // namespace tidepool
