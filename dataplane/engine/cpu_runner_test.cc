// The runner against a model written down in double precision, its options,
// and its memory.
#include "dataplane/engine/cpu_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "dataplane/engine/cpu_runner_test_util.h"
#include "dataplane/engine/kernels_test_util.h"
#include "dataplane/engine/rope_table.h"
#include "tests/fakes/allocation_count.h"

namespace tidepool::engine {
namespace {

using fakes::allocations;

using Vector = std::vector<double>;

// One sequence, token by token, as the papers write it.
class ReferenceModel {
 public:
  ReferenceModel(const model::ModelConfig& config, RandomWeights& weights)
      : config_(config),
        weights_(weights),
        frequencies_(internal::RopeFrequencies(config)),
        keys_(static_cast<size_t>(config.num_layers)),
        values_(static_cast<size_t>(config.num_layers)) {}

  // Logits after one more token.
  Vector Next(int32_t token) {
    const std::vector<float>& embedding = Tensor(
        "model.embed_tokens.weight", {config_.vocab_size, config_.hidden_size});
    const float* row = embedding.data() + token * config_.hidden_size;
    Vector x(row, row + config_.hidden_size);
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      Add(x, Attend(layer, prefix + "self_attn.",
                    Norm(x, prefix + "input_layernorm.weight")));
      Add(x, Mlp(prefix + "mlp.",
                 Norm(x, prefix + "post_attention_layernorm.weight")));
    }
    ++position_;
    return Project(
        config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head",
        Norm(x, "model.norm.weight"), config_.vocab_size, false);
  }

 private:
  const std::vector<float>& Tensor(const std::string& name,
                                   const std::vector<int64_t>& shape) {
    return weights_.Values(name, shape);
  }

  static void Add(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  Vector Norm(const Vector& x, const std::string& name) {
    const std::vector<float>& weight = Tensor(name, {std::ssize(x)});
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) +
                                       config_.rms_norm_eps);
    Vector y;
    for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * scale * weight[i]);
    return y;
  }

  Vector Project(const std::string& name, const Vector& x, int64_t outputs,
                 bool has_bias) {
    const auto inputs = std::ssize(x);
    const std::vector<float>& weight =
        Tensor(name + ".weight", {outputs, inputs});
    Vector y(static_cast<size_t>(outputs));
    for (int64_t n = 0; n < outputs; ++n) {
      for (int64_t k = 0; k < inputs; ++k)
        y[n] += weight[n * inputs + k] * x[k];
    }
    if (has_bias) {
      const std::vector<float>& bias = Tensor(name + ".bias", {outputs});
      for (int64_t n = 0; n < outputs; ++n) y[n] += bias[n];
    }
    return y;
  }

  Vector Head(const Vector& heads, int64_t head, const std::string& norm) {
    const int64_t dim = config_.head_dim;
    Vector x(heads.begin() + head * dim, heads.begin() + (head + 1) * dim);
    if (config_.qk_norm) x = Norm(x, norm);
    Vector y = x;
    for (int64_t i = 0; i < dim / 2; ++i) {
      const double angle = position_ * double{frequencies_[i]};
      y[i] = x[i] * std::cos(angle) - x[i + dim / 2] * std::sin(angle);
      y[i + dim / 2] =
          x[i + dim / 2] * std::cos(angle) + x[i] * std::sin(angle);
    }
    return y;
  }

  Vector Attend(int64_t layer, const std::string& prefix, const Vector& x) {
    const bool bias = config_.attention_qkv_bias;
    const int64_t dim = config_.head_dim;
    const Vector q = Project(prefix + "q_proj", x, config_.q_size(), bias);
    const Vector k = Project(prefix + "k_proj", x, config_.kv_size(), bias);
    values_[layer].push_back(
        Project(prefix + "v_proj", x, config_.kv_size(), bias));
    Vector rotated;
    for (int64_t head = 0; head < config_.num_kv_heads; ++head) {
      const Vector one = Head(k, head, prefix + "k_norm.weight");
      rotated.insert(rotated.end(), one.begin(), one.end());
    }
    keys_[layer].push_back(rotated);
    Vector out;
    for (int64_t head = 0; head < config_.num_heads; ++head) {
      const int64_t kv = head / (config_.num_heads / config_.num_kv_heads);
      const Vector query = Head(q, head, prefix + "q_norm.weight");
      Vector weights;
      double total = 0;
      for (const Vector& key : keys_[layer]) {
        double score = 0;
        for (int64_t d = 0; d < dim; ++d) score += query[d] * key[kv * dim + d];
        weights.push_back(std::exp(score / std::sqrt(double(dim))));
        total += weights.back();
      }
      for (int64_t d = 0; d < dim; ++d) {
        double sum = 0;
        for (size_t p = 0; p < weights.size(); ++p)
          sum += weights[p] / total * values_[layer][p][kv * dim + d];
        out.push_back(sum);
      }
    }
    return Project(prefix + "o_proj", out, config_.hidden_size,
                   config_.attention_output_bias);
  }

  Vector Mlp(const std::string& prefix, const Vector& x) {
    const int64_t inner = config_.intermediate_size;
    const bool bias = config_.mlp_bias;
    Vector gate = Project(prefix + "gate_proj", x, inner, bias);
    const Vector up = Project(prefix + "up_proj", x, inner, bias);
    for (size_t i = 0; i < gate.size(); ++i)
      gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return Project(prefix + "down_proj", gate, config_.hidden_size, bias);
  }

  const model::ModelConfig config_;
  RandomWeights& weights_;
  const std::vector<float> frequencies_;
  std::vector<std::vector<Vector>> keys_, values_;  // [layer][position]
  double position_ = 0;
};

class CpuRunnerTest : public internal::KernelTest {};

TEST_P(CpuRunnerTest, AgreesWithTheReferenceModel) {
  for (const model::ModelConfig& config :
       {SmallLlama(), SmallQwen2(), SmallQwen3()}) {
    RandomWeights weights(9);
    ReferenceModel reference(config, weights);
    TestRunner runner(config, weights, {.mode = mode_, .isa = isa_});
    TestSequence sequence =
        runner.Sequence(1, RandomPrompt(random_, config.vocab_size, 90));
    Vector expected;
    for (const int32_t token : sequence.context)
      expected = reference.Next(token);
    for (int32_t i = 0; i < 4; ++i) {
      runner.Step({{&sequence, 50}});
      if (sequence.done < sequence.prompt_tokens) continue;
      const Logits& logits = runner.logits().at(1, sequence.done - 1);
      ASSERT_EQ(logits.size(), expected.size());
      for (size_t j = 0; j < logits.size(); ++j) {
        ASSERT_NEAR(logits[j], expected[j],
                    mode_ == ComputeMode::kFloat32 ? 1e-4 : 0.2)
            << "vocabulary " << config.vocab_size << " token " << i;
      }
      expected = reference.Next(sequence.context.back());
    }
  }
}

TEST_P(CpuRunnerTest, DoesNotAllocateOnceWarm) {
  const model::ModelConfig config = SmallQwen2();
  RandomWeights weights(9);
  TestRunner runner(
      config, weights,
      {.mode = mode_, .isa = isa_, .threads = 2, .records_logits = false});
  std::vector<std::vector<int32_t>> contexts;
  for (int32_t i = 0; i < 70; ++i)
    contexts.push_back(RandomPrompt(random_, config.vocab_size, 20 + i % 3));
  std::vector<std::vector<PageId>> pages;
  for (int32_t i = 0; i < 70; ++i) pages.push_back({2 * i, 2 * i + 1});
  SamplingParams greedy{.temperature = 0};
  SamplingParams drawn{
      .temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .logprobs = 3};
  StepPlan plan;
  for (size_t i = 0; i < contexts.size(); ++i) {
    const auto size = static_cast<int32_t>(contexts[i].size());
    plan.sequences.push_back({.sequence = i,
                              .context = contexts[i],
                              .prompt_tokens = size,
                              .begin = i % 2 == 0 ? 0 : size - 1,
                              .end = size,
                              .pages = pages[i],
                              .sample = true,
                              .sampling = i % 3 == 0 ? &drawn : &greedy});
  }
  StepResult result;
  ASSERT_TRUE(runner.runner().Execute(plan, nullptr, result).ok());
  ASSERT_TRUE(runner.runner().Execute(plan, nullptr, result).ok());
  const int64_t before = allocations.load();
  EXPECT_GT(before, 0);
  ASSERT_TRUE(runner.runner().Execute(plan, nullptr, result).ok());
  EXPECT_EQ(allocations.load() - before, 0);
}

INSTANTIATE_KERNEL_TEST(CpuRunnerTest);

class OptionsTest : public testing::Test {
 protected:
  OptionsTest() {
    options_.num_pages = 2;
    options_.page_tokens = 16;
    options_.max_model_len = 32;
    const auto bytes = static_cast<size_t>(
        2 * KvLayoutFor(config_, options_.mode, 16).page_bytes());
    memory_.resize(bytes / sizeof(memory_[0]) + 1);
    options_.kv_pool = {memory_[0].bytes, bytes};
  }

  std::string ErrorOf() {
    const auto runner = CreateCpuRunner(config_, weights_, options_);
    return runner.ok() ? "" : std::string(MessageOf(runner.status()));
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const model::ModelConfig config_ = SmallQwen2();
  RandomWeights weights_{1};
  std::vector<Line> memory_;
  CpuRunnerOptions options_;
};

TEST_F(OptionsTest, GoodOnesPass) { EXPECT_EQ(ErrorOf(), ""); }

TEST_F(OptionsTest, BadOnesAreNamed) {
  const auto expect = [&](std::string_view name, auto change) {
    const CpuRunnerOptions good = options_;
    change(options_);
    EXPECT_THAT(ErrorOf(), testing::StartsWith(std::string(name) + ":"));
    options_ = good;
  };
  expect("threads", [](auto& o) { o.threads = 0; });
  expect("threads", [](auto& o) { o.threads = 5000; });
  expect("num_pages", [](auto& o) { o.num_pages = -1; });
  expect("page_tokens", [](auto& o) { o.page_tokens = 48; });
  expect("max_step_tokens", [](auto& o) { o.max_step_tokens = 0; });
  expect("max_step_sequences", [](auto& o) { o.max_step_sequences = 1 << 30; });
  expect("max_model_len", [](auto& o) { o.max_model_len = 4096; });
  expect("kv_pool", [](auto& o) { o.num_pages = 3; });
  expect("kv_pool",
         [](auto& o) { o.kv_pool = o.kv_pool.first(o.kv_pool.size() - 1); });
  expect("rope_frequencies", [](auto& o) { o.rope_frequencies = {1.0f}; });
}

TEST_F(OptionsTest, ProgressEndsWithAllBytes) {
  int64_t last = 0, all = 0, calls = 0;
  options_.load_progress = [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
    ++calls;
  };
  EXPECT_EQ(ErrorOf(), "");
  EXPECT_EQ(last, all);
  EXPECT_EQ(calls, std::ssize(model::TensorsOf(config_)));
}

}  // namespace
}  // namespace tidepool::engine
