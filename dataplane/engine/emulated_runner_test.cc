#include "dataplane/engine/emulated_runner.h"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "dataplane/engine/engine_core.h"

namespace tidepool::engine {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kPageTokens = 16;
constexpr int32_t kPages = 64;

// An engine with its runner, on a clock that only the runner moves.
class EmulatedEngine {
 public:
  explicit EmulatedEngine(int32_t max_batched_tokens = 64) {
    const KvLayout layout = EmulatedKvLayout(kPageTokens);
    memory_.resize(static_cast<size_t>(layout.page_bytes() * kPages) / 8);
    PerfModel perf;
    perf.prefill_base = perf.decode_base = milliseconds(10);
    perf.per_prompt_token = milliseconds(1);
    auto runner = CreateEmulatedRunner(
        {.perf = perf,
         .vocab_size = 1000,
         .eos_ids = {3},
         .kv_pool = std::as_writable_bytes(std::span(memory_)),
         .num_pages = kPages,
         .page_tokens = kPageTokens,
         .clock = &clock_,
         .sleep_until = [this](TimePoint until) { clock_.Set(until); }});
    runner_ = *std::move(runner);
    core_ = *EngineCore::Create({.page_tokens = kPageTokens,
                                 .block_tokens = kPageTokens,
                                 .num_pages = kPages,
                                 .max_num_seqs = 16,
                                 .max_num_batched_tokens = max_batched_tokens,
                                 .max_model_len = 512,
                                 .vocab_size = 1000,
                                 .eos_ids = {3}});
  }

  void Add(SequenceId id, std::vector<int32_t> prompt, uint64_t seed) {
    const auto size = static_cast<int32_t>(prompt.size());
    ASSERT_TRUE(core_
                    ->Add({.id = id,
                           .tokens = std::move(prompt),
                           .prompt_tokens = size,
                           .sampling = {.seed = seed, .max_tokens = 40}})
                    .ok());
  }
  // Tokens by sequence.
  std::map<SequenceId, std::vector<int32_t>> Run(
      LayerObserver* observer = nullptr) {
    std::map<SequenceId, std::vector<int32_t>> tokens;
    while (const StepPlan* plan = core_->Plan()) {
      EXPECT_TRUE(runner_->Execute(*plan, observer, result_).ok());
      for (const EngineOutput& output : core_->Complete(result_))
        tokens[output.sequence].push_back(output.token.value());
    }
    return tokens;
  }

  ManualClock clock_;
  std::vector<uint64_t> memory_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<EngineCore> core_;
  StepResult result_;
};

std::vector<int32_t> Prompt(int32_t size, int32_t first) {
  std::vector<int32_t> prompt(static_cast<size_t>(size));
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

TEST(EmulatedRunnerTest, TokensDependOnTheRequestAlone) {
  EmulatedEngine alone;
  alone.Add(1, Prompt(100, 0), 7);
  const std::vector<int32_t> expected = alone.Run()[1];
  EXPECT_EQ(expected.size(), 40u);
  EXPECT_THAT(expected, testing::Not(testing::Contains(3)));

  EmulatedEngine batched(/*max_batched_tokens=*/17);
  batched.Add(1, Prompt(60, 500), 1);
  batched.Add(2, Prompt(100, 0), 7);
  batched.Add(3, Prompt(100, 0), 8);
  auto tokens = batched.Run();
  EXPECT_EQ(tokens[2], expected);
  EXPECT_NE(tokens[3], expected);
  batched.Add(4, Prompt(100, 0), 7);  // with a prefix hit
  EXPECT_EQ(batched.Run()[4], expected);
}

TEST(EmulatedRunnerTest, CorruptedKvShowsAsOtherTokens) {
  EmulatedEngine intact, damaged;
  intact.Add(1, Prompt(100, 0), 7);
  damaged.Add(1, Prompt(100, 0), 7);
  const std::vector<int32_t> expected = intact.Run()[1];
  class Damage : public LayerObserver {
   public:
    explicit Damage(std::vector<uint64_t>& memory) : memory_(memory) {}
    void OnLayer(const StepPlan& plan, int32_t layer) override {
      if (plan.number != last_ && layer == 3) {
        for (size_t i = 0; i < 16; ++i) memory_[i] ^= 1;  // a first page
        last_ = plan.number;
      }
    }
    std::vector<uint64_t>& memory_;
    uint64_t last_ = 0;
  } damage(damaged.memory_);
  EXPECT_NE(damaged.Run(&damage)[1], expected);
}

TEST(EmulatedRunnerTest, TakesTheStatedTimeLayerByLayer) {
  EmulatedEngine engine;
  engine.Add(1, Prompt(50, 0), 7);
  const StepPlan* plan = engine.core_->Plan();
  class Times : public LayerObserver {
   public:
    explicit Times(const Clock& clock) : clock_(clock) {}
    void OnLayer(const StepPlan&, int32_t) override {
      at.push_back(clock_.Now().time_since_epoch());
    }
    const Clock& clock_;
    std::vector<Duration> at;
  } times(engine.clock_);
  ASSERT_TRUE(engine.runner_->Execute(*plan, &times, engine.result_).ok());
  EXPECT_THAT(times.at, ElementsAre(milliseconds(15), milliseconds(30),
                                    milliseconds(45), milliseconds(60)));
}

TEST(EmulatedRunnerTest, RefusesMemoryOfAnotherSize) {
  std::vector<uint64_t> memory(10);
  const auto status = CreateEmulatedRunner(
                          {.vocab_size = 10,
                           .kv_pool = std::as_writable_bytes(std::span(memory)),
                           .num_pages = 2})
                          .status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("kv_pool"));
}

}  // namespace
}  // namespace tidepool::engine
