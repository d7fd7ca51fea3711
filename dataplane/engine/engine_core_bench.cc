// What planning costs beside the arithmetic: one step of a full decoding batch,
// and the admission of a long prompt that is in the cache. The budget is a
// small part of the fastest step worth having, 1 ms.
#include <benchmark/benchmark.h>

#include <vector>

#include "dataplane/base/check.h"
#include "dataplane/engine/engine_core.h"

namespace tidepool::engine {
namespace {

EngineConfig Config() {
  return {.page_tokens = 16,
          .block_tokens = 64,
          .num_pages = 1 << 17,
          .max_num_seqs = 256,
          .max_num_batched_tokens = 8192,
          .max_model_len = 1 << 20,
          .vocab_size = 150000};
}

// Answers every plan with the same token.
void RunStep(EngineCore& core, StepResult& result) {
  const StepPlan* plan = core.Plan();
  CHECK(plan != nullptr);
  result.number = plan->number;
  result.sequences.resize(plan->sequences.size());
  for (size_t i = 0; i < plan->sequences.size(); ++i) {
    result.sequences[i].sequence = plan->sequences[i].sequence;
    result.sequences[i].sampled = plan->sequences[i].sample;
    result.sequences[i].token = 7;
  }
  benchmark::DoNotOptimize(core.Complete(result));
}

EngineRequest Request(SequenceId id, int32_t prompt_tokens, int32_t first,
                      int32_t max_tokens) {
  EngineRequest request{.id = id, .prompt_tokens = prompt_tokens};
  request.tokens.assign(prompt_tokens, first);
  request.sampling.max_tokens = max_tokens;
  return request;
}

void BM_DecodeStep(benchmark::State& state) {
  const auto core = *EngineCore::Create(Config());
  StepResult result;
  const int32_t sequences = static_cast<int32_t>(state.range(0));
  SequenceId next_id = 0;
  // Topped up outside the clock when a batch has run its course.
  const auto fill = [&] {
    for (int32_t i = 0; i < sequences; ++i) {
      const Status added = core->Add(Request(next_id++, 1000, i + 1, 2000));
      CHECK(added.ok());
    }
    while (core->Stats().queued_prefill_tokens > 0) RunStep(*core, result);
  };
  for (auto _ : state) {
    if (!core->HasWork()) {
      state.PauseTiming();
      fill();
      state.ResumeTiming();
    }
    RunStep(*core, result);
  }
  state.SetItemsProcessed(state.iterations() * sequences);
}
BENCHMARK(BM_DecodeStep)
    ->Arg(1)
    ->Arg(64)
    ->Arg(256)
    ->Unit(benchmark::kMicrosecond);

// Add computes the keys (4 bytes of SHA-256 a token), Plan finds the prefix.
void BM_AdmitCachedPrompt(benchmark::State& state) {
  const auto core = *EngineCore::Create(Config());
  StepResult result;
  SequenceId next_id = 0;
  const auto run = [&] {
    const Status added = core->Add(
        Request(next_id++, static_cast<int32_t>(state.range(0)), 3, 1));
    CHECK(added.ok());
    while (core->HasWork()) RunStep(*core, result);
  };
  run();
  for (auto _ : state) run();
}
BENCHMARK(BM_AdmitCachedPrompt)
    ->Arg(1000)
    ->Arg(100000)
    ->Unit(benchmark::kMicrosecond);

// What a worker reports after every step: here with a cache full of blocks.
void BM_Stats(benchmark::State& state) {
  const auto core = *EngineCore::Create(Config());
  StepResult result;
  for (int32_t i = 0; i < 16; ++i) {
    const Status added = core->Add(Request(i, 100000, i + 1, 1));
    CHECK(added.ok());
    while (core->HasWork()) RunStep(*core, result);
  }
  for (auto _ : state) benchmark::DoNotOptimize(core->Stats());
}
BENCHMARK(BM_Stats)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tidepool::engine

BENCHMARK_MAIN();
