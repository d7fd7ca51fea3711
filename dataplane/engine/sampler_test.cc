#include "dataplane/engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "dataplane/base/random.h"
#include "dataplane/engine/sampler_math.h"

namespace tidepool::engine {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One request at one position; the defaults draw from all tokens.
struct Case {
  SamplingParams params;
  std::vector<int32_t> context = {0};
  int32_t prompt_tokens = 1;
  std::vector<uint64_t> mask;

  SequenceStep Step() const {
    return {.context = context,
            .prompt_tokens = prompt_tokens,
            .end = static_cast<int32_t>(context.size()),
            .sample = true,
            .sampling = &params,
            .token_mask = mask};
  }
};

SequenceResult SampleOnce(std::span<const float> logits, const Case& c,
                          std::vector<int32_t> eos_ids = {}) {
  Sampler sampler(std::ssize(logits), eos_ids);
  SequenceResult result;
  sampler.Sample(logits, c.Step(), result);
  EXPECT_TRUE(result.sampled);
  return result;
}

Case Greedy() { return {.params = {.temperature = 0}}; }

// All tokens that come up under some seed.
std::set<int32_t> Support(std::span<const float> logits, Case c,
                          int draws = 300) {
  Sampler sampler(std::ssize(logits), {});
  SequenceResult result;
  std::set<int32_t> tokens;
  for (c.params.seed = 0; std::cmp_less(c.params.seed, draws);
       ++c.params.seed) {
    sampler.Sample(logits, c.Step(), result);
    tokens.insert(result.token);
  }
  return tokens;
}

TEST(SamplerTest, GreedyTakesTheLowestIdOfATie) {
  EXPECT_EQ(SampleOnce(std::vector<float>{1, 3, 3, 2}, Greedy()).token, 1);
  std::vector<float> far(1000, 0);
  far[999] = far[700] = 1;
  EXPECT_EQ(SampleOnce(far, Greedy()).token, 700);
}

TEST(SamplerTest, TinyTemperaturesAreGreedy) {
  Case c;
  c.params.temperature = 1e-6f;
  EXPECT_THAT(Support(std::vector<float>{1, 1.001f, 1}, c), ElementsAre(1));
}

TEST(SamplerTest, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f),
                                     std::log(0.2f), -kInfinity};
  Sampler sampler(4, {});
  SequenceResult result;
  int counts[4] = {};
  Case c;
  for (c.params.seed = 0; c.params.seed < 20000; ++c.params.seed) {
    sampler.Sample(logits, c.Step(), result);
    ++counts[result.token];
  }
  // Five standard deviations.
  EXPECT_NEAR(counts[0], 10000, 360);
  EXPECT_NEAR(counts[1], 6000, 330);
  EXPECT_NEAR(counts[2], 4000, 290);
  EXPECT_EQ(counts[3], 0);
}

TEST(SamplerTest, DrawsDependOnSeedAndPositionOnly) {
  std::vector<float> logits(500);
  Random random(1);
  for (float& logit : logits) logit = static_cast<float>(random.Unit() * 4);
  Sampler sampler(500, {});
  SequenceResult first, again;
  Case c{.params = {.seed = 7}};
  sampler.Sample(logits, c.Step(), first);
  Case other{.params = {.repetition_penalty = 2, .seed = 9}, .context = {4, 4}};
  sampler.Sample(logits, other.Step(), again);
  c.context = {3};
  sampler.Sample(logits, c.Step(), again);
  EXPECT_EQ(first.token, again.token);
  std::set<int32_t> tokens;
  for (int i = 0; i < 50; ++i) {
    c.context.push_back(3);
    sampler.Sample(logits, c.Step(), again);
    tokens.insert(again.token);
  }
  EXPECT_THAT(tokens, SizeIs(Ge(30)));
}

TEST(SamplerTest, TopKKeepsTheLowestIdsOfATie) {
  Case c;
  c.params.top_k = 2;
  EXPECT_THAT(Support(std::vector<float>{1, 2, 1, 1}, c), ElementsAre(0, 1));
  c.params.top_k = 1;
  EXPECT_THAT(Support(std::vector<float>{1, 2, 2, 1}, c), ElementsAre(1));
  c.params.top_k = -1;
  EXPECT_THAT(Support(std::vector<float>{1, 2, 2, 1}, c), SizeIs(4));
}

TEST(SamplerTest, TopPKeepsTheTokenThatReachesIt) {
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f),
                                     std::log(0.3f)};
  Case c;
  c.params.top_p = 0.6f;
  EXPECT_THAT(Support(logits, c), ElementsAre(1, 2));
  c.params.top_p = 0.4f;
  EXPECT_THAT(Support(logits, c), ElementsAre(1));
  c.params.top_p = 1e-9f;
  EXPECT_THAT(Support(logits, c), ElementsAre(1));
  c.params.top_p = 0.999f;
  EXPECT_THAT(Support(logits, c), SizeIs(3));
}

TEST(SamplerTest, TopPIsAShareOfWhatTopKLeaves) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f),
                                     std::log(0.2f), std::log(0.1f)};
  Case c;
  c.params.top_p = 0.5f;
  EXPECT_THAT(Support(logits, c), ElementsAre(0, 1));
  c.params.top_k = 2;  // shares 4/7 and 3/7
  EXPECT_THAT(Support(logits, c), ElementsAre(0));
}

TEST(SamplerTest, MinPIsRelativeToTheMostLikely) {
  const std::vector<float> logits = {0, std::log(0.5f), std::log(0.2f)};
  Case c;
  c.params.min_p = 0.4f;
  EXPECT_THAT(Support(logits, c), ElementsAre(0, 1));
  c.params.min_p = 1;
  EXPECT_THAT(Support(logits, c), ElementsAre(0));
}

TEST(SamplerTest, RepetitionPenaltyCountsThePromptTheOthersDoNot) {
  Case c = Greedy();
  c.context = {0, 1};
  c.prompt_tokens = 1;
  c.params.repetition_penalty = 2;
  EXPECT_EQ(SampleOnce(std::vector<float>{3, 3, 1.6f}, c).token, 2);
  EXPECT_EQ(SampleOnce(std::vector<float>{-1, -1, -1.9f}, c).token, 2);
  c.params.repetition_penalty = 1;
  c.params.presence_penalty = 2;
  EXPECT_EQ(SampleOnce(std::vector<float>{3, 3, 2}, c).token, 0);
  EXPECT_EQ(SampleOnce(std::vector<float>{0, 3, 2}, c).token, 2);
}

TEST(SamplerTest, FrequencyPenaltyGrowsWithEachUse) {
  Case c = Greedy();
  c.context = {2, 0, 0, 0, 1};
  c.params.frequency_penalty = 0.5f;
  EXPECT_EQ(SampleOnce(std::vector<float>{3, 1.6f, 0}, c).token, 0);
  EXPECT_EQ(SampleOnce(std::vector<float>{3, 2.1f, 0}, c).token, 1);
}

TEST(SamplerTest, LogitBiasAddsUp) {
  Case c = Greedy();
  c.params.logit_bias = {{2, 3.0f}, {2, 3.0f}, {0, -100.0f}};
  EXPECT_EQ(SampleOnce(std::vector<float>{50, 5, 0}, c).token, 2);
}

TEST(SamplerTest, EosAndStopIdsAreMaskedUntilMinTokens) {
  Case c = Greedy();
  c.params.min_tokens = 2;
  c.params.stop_token_ids = {1};
  c.params.ignore_eos = true;
  const std::vector<float> logits = {9, 8, 7};
  EXPECT_EQ(SampleOnce(logits, c, {0, 77}).token, 2);
  c.context = {0, 2};
  EXPECT_EQ(SampleOnce(logits, c, {0}).token, 2);
  c.context = {0, 2, 2};
  EXPECT_EQ(SampleOnce(logits, c, {0}).token, 0);
}

TEST(SamplerTest, OnlyWhatTheMaskAllowsIsDrawn) {
  std::vector<float> logits(130, 1);
  Case c;
  c.mask = {1ull << 63, 0, 0b10};
  EXPECT_THAT(Support(logits, c), ElementsAre(63, 129));
  c.params.logit_bias = {{5, 100.0f}};
  EXPECT_THAT(Support(logits, c), ElementsAre(63, 129));
  // Even if the rest is impossible.
  logits[63] = -kInfinity;
  logits[129] = kNan;
  EXPECT_THAT(Support(logits, c), ElementsAre(63));
}

TEST(SamplerTest, WhateverTheLogitsTheTokenIsInRange) {
  const float largest = std::numeric_limits<float>::max();
  const std::vector<std::vector<float>> all = {
      {kNan, kNan, kNan},        {-kInfinity, -kInfinity, -kInfinity},
      {kInfinity, kInfinity, 0}, {kNan, kInfinity, -kInfinity},
      {largest, -largest, 0},    {-largest, -largest, -largest},
      {1e-40f, 0, -1e-40f},      {-kInfinity, kNan, -largest}};
  for (const std::vector<float>& logits : all) {
    for (const float temperature : {0.0f, 2e-5f, 1.0f, 2.0f}) {
      for (const float top_p : {1.0f, 0.5f}) {
        Case c{.params = {.temperature = temperature,
                          .top_k = 2,
                          .top_p = top_p,
                          .min_p = 0.1f,
                          .repetition_penalty = 1e-30f,
                          .logprobs = 2}};
        const SequenceResult result = SampleOnce(logits, c);
        EXPECT_GE(result.token, 0);
        EXPECT_LT(result.token, 3);
        for (const TokenLogprob& entry : result.logprobs) {
          EXPECT_GE(entry.logprob, -9999);
          EXPECT_LE(entry.logprob, 0);
        }
      }
    }
  }
  EXPECT_EQ(SampleOnce(all[3], Greedy()).token, 1);
  EXPECT_EQ(SampleOnce(all[7], Greedy()).token, 2);
}

TEST(SamplerTest, LogprobsAreThoseOfTheRawLogits) {
  Case c = Greedy();
  c.params.logprobs = 2;
  c.params.logit_bias = {{0, 100.0f}};
  const std::vector<float> logits = {std::log(1.f), std::log(5.f),
                                     std::log(2.f), std::log(2.f)};
  const PositionLogprobs logprobs = SampleOnce(logits, c).logprobs;
  ASSERT_THAT(logprobs, SizeIs(3));
  EXPECT_EQ(logprobs[0].token, 0);
  EXPECT_EQ(logprobs[0].rank, 4);
  EXPECT_NEAR(logprobs[0].logprob, std::log(0.1), 1e-6);
  EXPECT_EQ(logprobs[1].token, 1);
  EXPECT_EQ(logprobs[1].rank, 1);
  EXPECT_NEAR(logprobs[1].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(logprobs[2].token, 2);
  EXPECT_EQ(logprobs[2].rank, 2);
  c.params.logprobs = 0;
  EXPECT_THAT(SampleOnce(logits, c).logprobs, SizeIs(1));
  c.params.logprobs = -1;
  EXPECT_THAT(SampleOnce(logits, c).logprobs, IsEmpty());
}

TEST(SamplerTest, PromptLogprobsNameTheActualToken) {
  Sampler sampler(4, {});
  PositionLogprobs out;
  const std::vector<float> logits = {1, 4, 4, 2};
  sampler.PromptLogprobs(logits, 3, 20, out);
  std::vector<int32_t> tokens, ranks;
  for (const TokenLogprob& entry : out) {
    tokens.push_back(entry.token);
    ranks.push_back(entry.rank);
  }
  EXPECT_THAT(tokens, ElementsAre(3, 1, 2, 3, 0));
  EXPECT_THAT(ranks, ElementsAre(3, 1, 1, 3, 4));
  EXPECT_EQ(out[0].logprob, out[3].logprob);
}

// The plain definition: sort everything, in double.
struct Reference {
  std::vector<double> weights;  // 0 for what is filtered out

  Reference(const std::vector<float>& logits, const SamplingParams& params) {
    const float max = std::ranges::max(logits);
    for (const float logit : logits) {
      weights.push_back(
          std::exp((double{logit} - double{max}) / double{params.temperature}));
    }
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](int32_t id) { return logits[id]; });
    for (double& weight : weights) {
      if (weight < double{params.min_p}) weight = 0;
    }
    const size_t k = params.top_k > 0 ? params.top_k : order.size();
    for (size_t i = k; i < order.size(); ++i) weights[order[i]] = 0;
    const double limit = std::accumulate(weights.begin(), weights.end(), 0.0) *
                         double{params.top_p};
    double sum = 0;
    for (const int32_t id : order) {
      if (params.top_p < 1 && sum >= limit) weights[id] = 0;
      sum += weights[id];
    }
  }
};

TEST(SamplerTest, AgreesWithThePlainDefinition) {
  Random random(42);
  for (int round = 0; round < 400; ++round) {
    const int sizes[] = {1, 2, 100, 255, 256, 257, 1000, 3000};
    const int size = sizes[random.Below(std::size(sizes))];
    std::vector<float> logits(size);
    const double spread = std::pow(10, random.Unit() * 3 - 1);
    // Coarse values make ties.
    const double grain = random.Chance(0.3) ? 4 : 1e6;
    for (float& logit : logits) {
      logit = static_cast<float>(
          std::round((random.Unit() - 0.5) * spread * grain) / grain);
    }
    Case c;
    c.params.temperature = static_cast<float>(0.1 + random.Unit() * 1.9);
    if (random.Chance(0.5)) {
      c.params.top_k = static_cast<int32_t>(random.Below(60));
    }
    if (random.Chance(0.5)) {
      c.params.top_p = static_cast<float>(0.05 + 0.95 * random.Unit());
    }
    if (random.Chance(0.3)) {
      c.params.min_p = static_cast<float>(random.Unit() * 0.3);
    }
    c.params.seed = random.Next();
    const int32_t token = SampleOnce(logits, c).token;

    const Reference reference(logits, c.params);
    const double total = std::accumulate(reference.weights.begin(),
                                         reference.weights.end(), 0.0);
    const double before = std::accumulate(
        reference.weights.begin(), reference.weights.begin() + token, 0.0);
    const double target =
        ToUnit(RandomAt(c.params.seed, c.context.size())) * total;
    // Where a filter ends may differ by a rounding, which moves the target.
    const double tolerance = 1e-5 * total;
    EXPECT_GE(target, before - tolerance) << "round " << round;
    EXPECT_LE(target, before + reference.weights[token] + tolerance)
        << "round " << round;
    EXPECT_GT(reference.weights[token], 0) << "round " << round;
  }
}

TEST(SamplerMathTest, ExpIsCloseAndExactAtTheMaximum) {
  std::vector<float> values(internal::kBlock), weights(internal::kBlock);
  for (int i = 0; i < internal::kBlock; ++i) {
    values[i] = 3.0f - 0.37f * static_cast<float>(i);
  }
  internal::ExpWeights(values, 3.0f, 1, weights);
  EXPECT_EQ(weights[0], 1);
  for (int i = 0; i < internal::kBlock; ++i) {
    const double x = double{values[i]} - 3;
    EXPECT_NEAR(weights[i], std::exp(x), 3e-7 * std::exp(x) + 1e-38) << x;
    if (x < -88) {
      EXPECT_EQ(weights[i], 0) << x;
    }
  }
}

TEST(SamplerMathTest, BucketsKeepTheOrder) {
  Random random(3);
  std::vector<float> values(internal::kBlock);
  for (float& value : values) value = static_cast<float>(random.Unit() * 30);
  values[7] = -kInfinity;
  std::vector<int32_t> buckets(values.size());
  const float max = internal::MaxOf(values);
  const float min = internal::MinFiniteOf(values, max);
  EXPECT_EQ(min, *std::ranges::min_element(
                     values, {}, [](float v) { return v < 0 ? 99 : v; }));
  internal::AssignBuckets(values, max, min, 50, buckets);
  EXPECT_EQ(buckets[7], -1);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_LT(buckets[i], 50);
    for (size_t j = 0; j < values.size(); ++j) {
      if (buckets[i] < 0 || buckets[j] < 0) continue;
      if (values[i] > values[j]) {
        EXPECT_LE(buckets[i], buckets[j]);
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::engine
