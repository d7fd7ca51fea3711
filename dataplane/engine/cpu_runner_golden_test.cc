// The runner against what Hugging Face's transformers computed from the same
// weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "dataplane/engine/cpu_runner_test_util.h"
#include "dataplane/engine/rope_table.h"

namespace tidepool::engine {
namespace {

using nlohmann::json;

struct Case {
  std::string model;   // folder
  std::string golden;  // file in it
  // The reference of the tiny models was computed by modules that had been
  // converted to bfloat16 and back, rotary frequencies included. Rounding them
  // likewise reproduces its logits.
  bool rounds_rope = false;
};

std::string FolderOf(const std::string& model) {
  const std::filesystem::path source(TIDEPOOL_SOURCE_DIR);
  const auto inside = source / "models" / model;
  if (std::filesystem::exists(inside)) return inside;
  return source.parent_path() / "shared" / "models" / model;
}

std::vector<float> RoundedRope(const model::ModelConfig& config) {
  std::vector<float> frequencies = internal::RopeFrequencies(config);
  for (float& frequency : frequencies) {
    const auto bits = std::bit_cast<uint32_t>(frequency);
    frequency =
        std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
  }
  return frequencies;
}

// The difference between the two largest.
float MarginOf(const Logits& logits) {
  float first = -INFINITY, second = -INFINITY;
  for (const float logit : logits) {
    second = std::max(second, std::min(first, logit));
    first = std::max(first, logit);
  }
  return first - second;
}

struct Comparison {
  float max_error = 0;  // of the prompt's last logits
  int64_t compared = 0, equal = 0;
};

// Follows the greedy continuation of one case.
void Compare(TestRunner& runner, SequenceId id, const json& expected,
             float margin, Comparison& result) {
  const auto prompt = expected.at("prompt_ids").get<std::vector<int32_t>>();
  TestSequence sequence = runner.Sequence(id, prompt);
  for (const int32_t token : expected.at("greedy_ids")) {
    const auto position = static_cast<int32_t>(sequence.context.size()) - 1;
    runner.Step({{&sequence, position + 1}});
    // What a token is chosen by must not hang on rounding.
    if (MarginOf(runner.logits().at(id, position)) > margin) {
      ++result.compared;
      result.equal += sequence.context.back() == token;
    }
    sequence.context.back() = token;  // go on along the reference
  }
  const Logits& last =
      runner.logits().at(id, static_cast<int32_t>(prompt.size()) - 1);
  const auto compare = [&](int64_t token, float value) {
    result.max_error =
        std::max(result.max_error, std::abs(last[token] - value));
  };
  const json first = expected.value("last_logits_first16", json::array());
  for (size_t i = 0; i < first.size(); ++i) compare(i, first[i]);
  const json top = expected.value("last_top8_ids", json::array());
  for (size_t i = 0; i < top.size(); ++i)
    compare(top[i], expected.at("last_top8_logits")[i]);
  runner.Free(sequence);
}

class GoldenTest
    : public testing::TestWithParam<std::tuple<Case, ComputeMode, Isa>> {};

TEST_P(GoldenTest, AgreesWithTheReference) {
  const auto& [golden, mode, isa] = GetParam();
  const std::string folder = FolderOf(golden.model);
  std::ifstream file(folder + "/" + golden.golden);
  if (!file.is_open()) {
    GTEST_SKIP() << "NOT TESTED: " << folder
                 << " is missing (a fixture outside of the repository)";
  }
  const json cases = json::parse(file).at("cases");
  auto description = model::LoadModelDescription(folder);
  ASSERT_TRUE(description.ok()) << description.status();
  auto source = model::OpenSafetensors(folder);
  ASSERT_TRUE(source.ok()) << source.status();
  const model::ModelConfig& config = description->config;
  TestRunner runner(
      config, **source,
      {.mode = mode,
       .isa = isa,
       .pool_tokens = 2048,
       .model_len = static_cast<int32_t>(
           std::min<int64_t>(1024, config.max_position_embeddings)),
       .rope_frequencies =
           golden.rounds_rope ? RoundedRope(config) : std::vector<float>()});

  const bool is_float = mode == ComputeMode::kFloat32;
  Comparison result;
  SequenceId id = 0;
  for (const json& expected : cases)
    Compare(runner, ++id, expected, is_float ? 1e-2f : 1e-1f, result);
  fmt::print(
      "{} {}: logits within {:.2e}, {} of {} clear greedy tokens equal\n",
      golden.model, NumericsId(mode, isa), result.max_error, result.equal,
      result.compared);
  EXPECT_GT(result.compared, 0);
  EXPECT_EQ(result.equal, result.compared);
  EXPECT_LT(result.max_error, is_float ? 1e-3f : 0.05f);
}

std::string NameOfCase(const testing::TestParamInfo<GoldenTest::ParamType>& i) {
  const auto& [golden, mode, isa] = i.param;
  std::string name = golden.model + "_";
  name += NameOf(mode);
  name += "_";
  name += NameOf(isa);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Models, GoldenTest,
    testing::Combine(testing::Values(Case{"tiny-llama", "golden.json", true},
                                     Case{"tiny-qwen2", "golden.json", true},
                                     Case{"tiny-qwen3", "golden.json", true},
                                     Case{"stories15M", "golden_greedy.json"},
                                     Case{"demo", "golden_greedy.json"}),
                     testing::Values(ComputeMode::kFloat32,
                                     ComputeMode::kBFloat16),
                     testing::ValuesIn(SupportedIsas())),
    NameOfCase);

}  // namespace
}  // namespace tidepool::engine
