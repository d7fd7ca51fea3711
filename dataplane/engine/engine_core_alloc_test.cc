// Steps allocate nothing once warm, with growth, preemption, eviction and every
// filter of the sampler at work.
#include <gtest/gtest.h>

#include <numeric>

#include "dataplane/engine/engine_core.h"
#include "dataplane/engine/engine_core_fake_runner.h"
#include "dataplane/engine/sampler.h"
#include "tests/fakes/allocation_count.h"

namespace tidepool::engine {
namespace {

using fakes::allocations;

TEST(EngineAllocationTest, TheCountCounts) {
  const int64_t before = allocations;
  const auto memory = std::make_unique<int>(1);
  EXPECT_EQ(*memory, 1);
  EXPECT_GT(allocations, before);
}

TEST(EngineAllocationTest, StepsDoNotAllocateOnceWarm) {
  constexpr int32_t kVocab = 1000;
  const EngineConfig config{.page_tokens = 4,
                            .block_tokens = 8,
                            .num_pages = 100,
                            .max_num_seqs = 8,
                            .max_num_batched_tokens = 32,
                            .max_model_len = 400,
                            .vocab_size = kVocab};
  const auto core = *EngineCore::Create(config);
  FakeRunner runner(config.num_pages, config.page_tokens, kVocab);
  for (SequenceId id = 0; id < 20; ++id) {
    EngineRequest request{.id = id, .prompt_tokens = 50};
    request.tokens.resize(50);
    std::iota(request.tokens.begin(), request.tokens.end(), id % 5);
    request.sampling = {.logprobs = 3, .max_tokens = 150, .ignore_eos = true};
    ASSERT_TRUE(core->Add(std::move(request)).ok());
  }
  StepResult result;
  int64_t counted = 0;
  int32_t steps = 0;
  for (; core->HasWork() && steps < 5000; ++steps) {
    const int64_t before_plan = allocations;
    const StepPlan* plan = core->Plan();
    int64_t in_step = allocations - before_plan;
    ASSERT_NE(plan, nullptr);
    ASSERT_TRUE(runner.Execute(*plan, nullptr, result).ok());
    for (SequenceResult& sequence : result.sequences) {
      if (sequence.sampled) sequence.logprobs.resize(4);
    }
    const int64_t before_complete = allocations;
    core->Complete(result);
    in_step += allocations - before_complete;
    // By then every sequence of a full batch has put out its first token.
    if (steps >= 40) counted += in_step;
  }
  const EngineStats stats = core->Stats();
  EXPECT_FALSE(core->HasWork());
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(core->events().next_sequence() - 1,
            2 * core->CachedBlocks().size());
  EXPECT_EQ(counted, 0) << "in " << steps << " steps";
}

TEST(EngineAllocationTest, SamplingDoesNotAllocateOnceWarm) {
  constexpr int32_t kVocab = 5000;
  std::vector<float> logits(kVocab);
  for (int32_t i = 0; i < kVocab; ++i) {
    logits[i] = static_cast<float>(ToUnit(RandomAt(1, i)) * 9);
  }
  const std::vector<int32_t> context(100, 3);
  const SamplingParams params{.temperature = 0.9f,
                              .top_k = 1000,
                              .top_p = 0.9f,
                              .min_p = 0.001f,
                              .repetition_penalty = 1.1f,
                              .presence_penalty = 0.5f,
                              .frequency_penalty = 0.5f,
                              .logit_bias = {{5, 1.0f}},
                              .logprobs = 20,
                              .min_tokens = 5,
                              .stop_token_ids = {9}};
  const SequenceStep step{.context = context,
                          .prompt_tokens = 99,
                          .end = 100,
                          .sample = true,
                          .sampling = &params};
  Sampler sampler(kVocab, std::vector<int32_t>{2});
  SequenceResult result;
  PositionLogprobs prompt_logprobs;
  int64_t before = 0;
  for (int i = 0; i < 10; ++i) {
    if (i == 1) before = allocations;
    sampler.Sample(logits, step, result);
    sampler.PromptLogprobs(logits, 7, 20, prompt_logprobs);
  }
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace tidepool::engine
