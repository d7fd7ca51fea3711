#include "dataplane/engine/perf_model.h"

#include <gmock/gmock.h>

#include <vector>

namespace tidepool::engine {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr char kModel[] = R"(
load_seconds: 2
kv_capacity_tokens: 65536
speed: 2
prefill:
  base_seconds: 0.010
  seconds_per_token: 0.001
  seconds_per_token_and_context_token: 0.00001
decode:
  base_seconds: 0.020
  seconds_per_sequence: 0.002
  seconds_per_context_token: 0.0001
)";

std::string ErrorOf(std::string_view text) {
  return std::string(MessageOf(ParsePerfModel(text, "f.yaml").status()));
}

StepPlan PlanOf(std::vector<SequenceStep> steps) {
  return {.number = 1, .sequences = std::move(steps)};
}

TEST(PerfModelTest, AddsPromptAndDecodeWorkToTheLongerBase) {
  const StatusOr<PerfModel> model = ParsePerfModel(kModel, "f.yaml");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->load, Seconds(2));
  EXPECT_EQ(model->kv_capacity_tokens, 65536);

  // 10 ms + 101 × (1 ms + 50 × 10 µs) = 161.5 ms, at twice the speed.
  const SequenceStep prompt = {.prompt_tokens = 101, .begin = 0, .end = 101};
  EXPECT_NEAR(Seconds(model->StepTime(PlanOf({prompt}))).count(), 0.08075,
              1e-9);
  // 20 ms + 2 ms + 100 × 100 µs = 32 ms.
  const SequenceStep decode = {.prompt_tokens = 50, .begin = 99, .end = 100};
  EXPECT_EQ(model->StepTime(PlanOf({decode})), milliseconds(16));
  // Both: the longer base once.
  EXPECT_NEAR(Seconds(model->StepTime(PlanOf({prompt, decode}))).count(),
              (0.020 + 0.1515 + 0.012) / 2, 1e-9);
  // The last token of a prompt alone is prompt work.
  const SequenceStep last = {.prompt_tokens = 50, .begin = 49, .end = 50};
  EXPECT_NEAR(Seconds(model->StepTime(PlanOf({last}))).count(),
              (0.010 + 0.001 + 49e-5) / 2, 1e-9);
}

TEST(PerfModelTest, NamesTheKeyThatIsWrong) {
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("f.yaml: is not a mapping"));
  EXPECT_THAT(ErrorOf("prefill: {}"),
              HasSubstr("f.yaml.prefill.base_seconds: is missing"));
  EXPECT_THAT(ErrorOf("prefil: {}"), HasSubstr("f.yaml.prefil: is unknown"));
  EXPECT_THAT(ErrorOf("prefill: {base_seconds: fast}"),
              HasSubstr("prefill.base_seconds: is not a number"));
  EXPECT_THAT(ErrorOf("prefill: {base_seconds: .nan}"),
              HasSubstr("prefill.base_seconds: is not a number"));
  EXPECT_THAT(ErrorOf("prefill: {base_seconds: -1}"),
              HasSubstr("prefill.base_seconds: -1 is not within"));
  EXPECT_THAT(ErrorOf("speed: 0"), HasSubstr("f.yaml.speed: 0 is not within"));
  EXPECT_THAT(ErrorOf("prefill: {base_seconds: 1, seconds_per_token: 1}"),
              HasSubstr("f.yaml.decode: is missing or not a mapping"));
  EXPECT_THAT(ErrorOf("a: [1"), HasSubstr("f.yaml: "));
  EXPECT_EQ(ReadPerfModel("no/such/file").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tidepool::engine
