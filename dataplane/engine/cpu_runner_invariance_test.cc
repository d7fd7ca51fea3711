// A sequence's logits, tokens and KV do not depend on anything but itself.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/engine/cpu_runner_test_util.h"
#include "dataplane/engine/kernels_test_util.h"

namespace tidepool::engine {
namespace {

constexpr int32_t kPromptTokens = 531;
constexpr int32_t kNewTokens = 6;

// All that a run produces, as bytes.
struct Outcome {
  std::vector<int32_t> context;
  std::vector<std::byte> kv;
  std::vector<Logits> logits;  // at every sampled position
};

void ExpectSame(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(a.context, b.context) << what;
  EXPECT_TRUE(a.kv == b.kv) << what << ": KV differs";
  ASSERT_EQ(a.logits.size(), b.logits.size());
  for (size_t i = 0; i < a.logits.size(); ++i) {
    ASSERT_EQ(a.logits[i].size(), b.logits[i].size());
    EXPECT_EQ(std::memcmp(a.logits[i].data(), b.logits[i].data(),
                          a.logits[i].size() * sizeof(float)),
              0)
        << what << ": logits of token " << i << " differ";
  }
}

class InvarianceTest : public internal::KernelTest {
 protected:
  std::unique_ptr<TestRunner> MakeRunner(int32_t threads, int32_t page_tokens,
                                         uint64_t page_seed = 1) {
    return std::make_unique<TestRunner>(config_, weights_,
                                        RunnerShape{.mode = mode_,
                                                    .isa = isa_,
                                                    .threads = threads,
                                                    .page_tokens = page_tokens,
                                                    .pool_tokens = 8192,
                                                    .page_seed = page_seed});
  }

  static Outcome OutcomeOf(const TestRunner& runner,
                           const TestSequence& sequence) {
    Outcome outcome{
        .context = sequence.context, .kv = runner.KvOf(sequence), .logits = {}};
    for (int32_t p = sequence.prompt_tokens - 1; p < sequence.done; ++p)
      outcome.logits.push_back(runner.logits().at(sequence.id, p));
    return outcome;
  }

  Outcome RunAlone(TestRunner& runner, int32_t chunk) {
    TestSequence sequence = runner.Sequence(1, prompt_);
    runner.Generate(sequence, kNewTokens, chunk);
    const Outcome outcome = OutcomeOf(runner, sequence);
    runner.Free(sequence);
    return outcome;
  }

  model::ModelConfig config_ = SmallLlama();
  RandomWeights weights_{5};
  std::vector<int32_t> prompt_ =
      RandomPrompt(random_, config_.vocab_size, kPromptTokens);
};

TEST_P(InvarianceTest, ChunksThreadsAndPages) {
  const Outcome expected = RunAlone(*MakeRunner(1, 64), 1 << 20);
  ASSERT_EQ(expected.logits.size(), size_t{kNewTokens});
  for (const int32_t threads : {1, 2, 5}) {
    for (const int32_t page_tokens : {16, 32, 64}) {
      const auto runner =
          MakeRunner(threads, page_tokens, 100 * threads + page_tokens);
      for (const int32_t chunk : {16, 64, 500, 77, 1 << 20}) {
        ExpectSame(expected, RunAlone(*runner, chunk),
                   fmt::format("{} threads, pages of {}, chunks of {}", threads,
                               page_tokens, chunk));
      }
    }
  }
}

TEST_P(InvarianceTest, EveryFamily) {
  for (const model::ModelConfig& config : {SmallQwen2(), SmallQwen3()}) {
    config_ = config;
    weights_ = RandomWeights(6);
    prompt_ = RandomPrompt(random_, config.vocab_size, kPromptTokens);
    const Outcome expected = RunAlone(*MakeRunner(1, 64), 1 << 20);
    for (const int32_t chunk : {16, 64, 500}) {
      ExpectSame(
          expected, RunAlone(*MakeRunner(2, 16, 2), chunk),
          fmt::format("{} KV heads, chunks of {}", config.num_kv_heads, chunk));
    }
  }
}

TEST_P(InvarianceTest, OneTokenAtATime) {
  const auto runner = MakeRunner(1, 16);
  const Outcome expected = RunAlone(*runner, 1 << 20);
  ExpectSame(expected, RunAlone(*runner, 1), "token by token");
}

TEST_P(InvarianceTest, CompanyInTheBatch) {
  const Outcome expected = RunAlone(*MakeRunner(1, 64), 1 << 20);
  for (const int32_t others : {1, 7, 63}) {
    const auto runner = MakeRunner(2, 16, 3);
    std::vector<TestSequence> company;
    for (int32_t i = 0; i < others; ++i) {
      const auto tokens = static_cast<int32_t>(1 + random_.Below(40));
      company.push_back(runner->Sequence(
          100 + i, RandomPrompt(random_, config_.vocab_size, tokens)));
    }
    TestSequence sequence = runner->Sequence(1, prompt_);
    while (std::ssize(sequence.context) < kPromptTokens + kNewTokens) {
      // Sometimes first, sometimes last, in chunks of changing size.
      std::vector<std::pair<TestSequence*, int32_t>> parts;
      for (TestSequence& other : company)
        parts.emplace_back(&other, 1 + static_cast<int32_t>(random_.Below(9)));
      const auto place = random_.Below(parts.size() + 1);
      parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(place),
                   {&sequence, 1 + static_cast<int32_t>(random_.Below(200))});
      runner->Step(parts);
    }
    ExpectSame(expected, OutcomeOf(*runner, sequence),
               fmt::format("with {} others", others));
  }
}

TEST_P(InvarianceTest, PrefixFromAnothersPages) {
  const auto runner = MakeRunner(2, 16);
  const Outcome expected = RunAlone(*runner, 1 << 20);
  for (const int32_t shared : {16, 64, 272, 528}) {
    std::vector<int32_t> start(prompt_.begin(), prompt_.begin() + shared + 3);
    TestSequence other = runner->Sequence(2, std::move(start));
    runner->Generate(other, 9, 100);
    TestSequence sequence = runner->Sequence(1, prompt_);
    runner->Adopt(sequence, other, shared);
    runner->Generate(sequence, kNewTokens, 90);
    ExpectSame(expected, OutcomeOf(*runner, sequence),
               fmt::format("{} tokens shared", shared));
    sequence.pages.erase(sequence.pages.begin(),
                         sequence.pages.begin() + shared / 16);
    runner->Free(sequence);
    runner->Free(other);
  }
}

// Keeps a copy of the KV as each layer is announced.
class KvWatcher : public LayerObserver {
 public:
  KvWatcher(const TestRunner& runner, const TestSequence& sequence)
      : runner_(runner), sequence_(sequence) {}

  void OnLayer(const StepPlan& plan, int32_t layer) override {
    EXPECT_EQ(layer, layers_);
    ++layers_;
    TestSequence view = sequence_;
    view.done = plan.sequences[0].end;
    view.pages.assign(plan.sequences[0].pages.begin(),
                      plan.sequences[0].pages.end());
    const std::vector<std::byte> kv = runner_.KvOf(view);
    const size_t layer_bytes = kv.size() / runner_.layout().num_layers;
    seen_.insert(seen_.end(), kv.begin() + layer * layer_bytes,
                 kv.begin() + (layer + 1) * layer_bytes);
  }

  const std::vector<std::byte>& seen() const { return seen_; }

 private:
  const TestRunner& runner_;
  const TestSequence& sequence_;
  int32_t layers_ = 0;
  std::vector<std::byte> seen_;
};

TEST_P(InvarianceTest, KvIsFinalWhenItsLayerIsAnnounced) {
  const auto runner = MakeRunner(2, 32);
  TestSequence sequence = runner->Sequence(1, prompt_);
  KvWatcher watcher(*runner, sequence);
  runner->Step({{&sequence, kPromptTokens}}, &watcher);
  EXPECT_TRUE(watcher.seen() == runner->KvOf(sequence));
}

TEST_P(InvarianceTest, PromptLogprobsDoNotDependOnChunks) {
  const auto runner = MakeRunner(1, 16);
  std::vector<PositionLogprobs> expected;
  for (const int32_t chunk : {1 << 20, 100}) {
    TestSequence sequence = runner->Sequence(1, prompt_);
    sequence.sampling.prompt_logprobs = 2;
    std::vector<PositionLogprobs> logprobs;
    while (sequence.done < kPromptTokens) {
      runner->Step({{&sequence, chunk}});
      const auto& step = runner->result().sequences[0].prompt_logprobs;
      logprobs.insert(logprobs.end(), step.begin(), step.end());
    }
    ASSERT_EQ(std::ssize(logprobs), kPromptTokens - 1);
    if (expected.empty()) expected = logprobs;
    for (size_t i = 0; i < logprobs.size(); ++i) {
      ASSERT_GE(logprobs[i].size(), 2u);
      EXPECT_EQ(logprobs[i][0].token, prompt_[i + 1]);
      EXPECT_EQ(logprobs[i][0].logprob, expected[i][0].logprob);
      EXPECT_EQ(logprobs[i][1].token, expected[i][1].token);
    }
    runner->Free(sequence);
  }
}

INSTANTIATE_KERNEL_TEST(InvarianceTest);

}  // namespace
}  // namespace tidepool::engine
