// Time to draw one token from logits as a trained model gives them: a few
// likely tokens above a wide bulk. The ceiling is the time to read the logits
// once (BM_ReadOnce).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "dataplane/base/random.h"
#include "dataplane/engine/sampler.h"
#include "dataplane/engine/sampler_math.h"

namespace tidepool::engine {
namespace {

constexpr int32_t kVocab = 151936;  // Qwen2.5

const std::vector<float>& Logits() {
  static const std::vector<float> logits = [] {
    Random random(1);
    std::vector<float> values(kVocab);
    for (float& value : values) {
      double bell = -6;
      for (int i = 0; i < 12; ++i) bell += random.Unit();
      value = static_cast<float>(bell * 2.5);
    }
    for (int i = 0; i < 20; ++i) values[random.Below(kVocab)] += 12;
    return values;
  }();
  return logits;
}

void BM_ReadOnce(benchmark::State& state) {
  std::vector<float> values = Logits();
  values.resize((kVocab + internal::kBlock - 1) / internal::kBlock *
                internal::kBlock);
  for (auto _ : state) benchmark::DoNotOptimize(internal::MaxOf(values));
}
BENCHMARK(BM_ReadOnce)->Unit(benchmark::kMicrosecond);

void BM_Sample(benchmark::State& state, SamplingParams params,
               bool flat = false) {
  std::vector<float> logits = Logits();
  if (flat) {
    for (float& logit : logits) logit *= 0.01f;
  }
  const std::vector<int32_t> context(1000, 7);
  Sampler sampler(kVocab, {});
  SequenceResult result;
  SequenceStep step{.context = context,
                    .prompt_tokens = 500,
                    .end = 1000,
                    .sample = true,
                    .sampling = &params};
  for (auto _ : state) {
    sampler.Sample(logits, step, result);
    benchmark::DoNotOptimize(result.token);
    ++params.seed;
  }
}

#define TIDEPOOL_SAMPLE_BENCH(name, ...) \
  BENCHMARK_CAPTURE(BM_Sample, name, __VA_ARGS__)->Unit(benchmark::kMicrosecond)
TIDEPOOL_SAMPLE_BENCH(greedy, {.temperature = 0});
TIDEPOOL_SAMPLE_BENCH(greedy_logprobs, {.temperature = 0, .logprobs = 20});
TIDEPOOL_SAMPLE_BENCH(temperature, {.temperature = 0.7f});
TIDEPOOL_SAMPLE_BENCH(penalties,
                      {.temperature = 0.7f, .frequency_penalty = 0.5f});
TIDEPOOL_SAMPLE_BENCH(min_p, {.min_p = 0.05f});
TIDEPOOL_SAMPLE_BENCH(top_k, {.top_k = 50});
TIDEPOOL_SAMPLE_BENCH(top_p, {.top_p = 0.9f});
TIDEPOOL_SAMPLE_BENCH(qwen_defaults,
                      {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f});
TIDEPOOL_SAMPLE_BENCH(top_p_of_flat_logits, {.top_p = 0.9f}, true);

}  // namespace
}  // namespace tidepool::engine

BENCHMARK_MAIN();
