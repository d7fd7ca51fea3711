#include "dataplane/engine/sampling_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tidepool::engine {
namespace {

using ::testing::HasSubstr;

template <typename Change>
std::string ErrorOf(Change change) {
  SamplingParams params;
  change(params);
  const Status status = ValidateSamplingParams(params, 100);
  EXPECT_TRUE(status.ok() || status.code() == Code::kInvalidArgument);
  return std::string(status.message());
}

TEST(SamplingParamsTest, DefaultsAndLimitsAreValid) {
  EXPECT_EQ(ErrorOf([](auto&) {}), "");
  EXPECT_EQ(ErrorOf([](auto& p) {
              p.temperature = 2;
              p.top_k = -1;
              p.top_p = 1e-20f;
              p.min_p = 1;
              p.repetition_penalty = 0.01f;
              p.presence_penalty = -2;
              p.frequency_penalty = 2;
              p.logit_bias = {{0, -100.0f}, {99, 100.0f}};
              p.logprobs = p.prompt_logprobs = kMaxLogprobs;
              p.max_tokens = p.min_tokens = 5;
              p.stop_token_ids = {0, 99};
            }),
            "");
}

TEST(SamplingParamsTest, NamesTheFieldThatIsWrong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {-0.1f, 2.1f, nan, infinity}) {
    EXPECT_THAT(ErrorOf([&](auto& p) { p.temperature = bad; }),
                HasSubstr("temperature must be in [0, 2]"));
  }
  for (const float bad : {0.0f, -1.0f, 1.1f, nan}) {
    EXPECT_THAT(ErrorOf([&](auto& p) { p.top_p = bad; }), HasSubstr("top_p"));
  }
  for (const float bad : {-0.1f, 1.1f, nan}) {
    EXPECT_THAT(ErrorOf([&](auto& p) { p.min_p = bad; }), HasSubstr("min_p"));
  }
  for (const float bad : {0.0f, -1.0f, nan, infinity}) {
    EXPECT_THAT(ErrorOf([&](auto& p) { p.repetition_penalty = bad; }),
                HasSubstr("repetition_penalty"));
  }
  for (const float bad : {-2.1f, 2.1f, nan}) {
    EXPECT_THAT(ErrorOf([&](auto& p) { p.presence_penalty = bad; }),
                HasSubstr("presence_penalty"));
    EXPECT_THAT(ErrorOf([&](auto& p) { p.frequency_penalty = bad; }),
                HasSubstr("frequency_penalty"));
  }
  EXPECT_THAT(ErrorOf([](auto& p) { p.top_k = -2; }), HasSubstr("top_k"));
  EXPECT_THAT(ErrorOf([](auto& p) { p.max_tokens = 0; }),
              HasSubstr("max_tokens must be at least 1"));
  EXPECT_THAT(ErrorOf([](auto& p) { p.min_tokens = 17; }),
              HasSubstr("min_tokens must be in [0, max_tokens = 16]"));
  EXPECT_THAT(ErrorOf([](auto& p) { p.logprobs = 21; }),
              HasSubstr("logprobs must be at most 20"));
  EXPECT_THAT(ErrorOf([](auto& p) { p.prompt_logprobs = -2; }),
              HasSubstr("prompt_logprobs"));
}

TEST(SamplingParamsTest, TokenIdsAreInTheVocabulary) {
  EXPECT_THAT(ErrorOf([](auto& p) { p.stop_token_ids = {100}; }),
              HasSubstr("stop_token_ids has token id 100"));
  EXPECT_THAT(ErrorOf([](auto& p) {
                p.logit_bias = {{-1, 1.0f}};
              }),
              HasSubstr("logit_bias has token id -1"));
  EXPECT_THAT(ErrorOf([](auto& p) {
                p.logit_bias = {{1, 101.0f}};
              }),
              HasSubstr("logit_bias must be in [-100, 100]"));
  EXPECT_THAT(ErrorOf([](auto& p) { p.stop_token_ids.assign(257, 1); }),
              HasSubstr("at most 256"));
  EXPECT_THAT(ErrorOf([](auto& p) {
                p.logit_bias.assign(1025, {1, 1.0f});
              }),
              HasSubstr("at most 1024"));
}

}  // namespace
}  // namespace tidepool::engine
