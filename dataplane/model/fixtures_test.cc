// The readers on real models: the one in the repository, and the shared
// fixtures where they are at hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "dataplane/model/config.h"
#include "dataplane/model/weights.h"

namespace tidepool::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kDemo[] = TIDEPOOL_SOURCE_DIR "/models/demo";
constexpr char kShared[] = TIDEPOOL_SOURCE_DIR "/../shared/models";

// Opens all tensors that the configuration asks for.
void ExpectComplete(const std::string& folder) {
  SCOPED_TRACE(folder);
  const auto description = LoadModelDescription(folder);
  ASSERT_TRUE(description.ok()) << description.status();
  const auto source = OpenSafetensors(folder);
  ASSERT_TRUE(source.ok()) << source.status();
  for (const TensorSpec& spec : TensorsOf(description->config)) {
    const auto view = (*source)->Get(spec.name, spec.shape);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->dtype, description->config.dtype);
    EXPECT_EQ(view->data.size(),
              static_cast<size_t>(view->num_elements() * BytesOf(view->dtype)));
  }
}

TEST(DemoModelTest, IsComplete) {
  ExpectComplete(kDemo);
  const auto description = LoadModelDescription(kDemo);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->config.architecture, Architecture::kQwen3);
  EXPECT_TRUE(description->config.tie_word_embeddings);
  EXPECT_THAT(description->config.eos_token_ids, ElementsAre(4095, 4093));
  EXPECT_EQ(description->generation.temperature, 0.7);
  EXPECT_EQ(description->generation.top_p, 0.9);
}

class SharedModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  SharedModelTest() : folder_(fmt::format("{}/{}", kShared, GetParam())) {}
  void SetUp() override {
    if (!std::filesystem::exists(folder_)) {
      GTEST_SKIP() << "SKIPPED: the shared fixture " << folder_
                   << " is not here";
    }
  }
  const std::string folder_;
};

using SupportedModelTest = SharedModelTest;
TEST_P(SupportedModelTest, IsComplete) { ExpectComplete(folder_); }
INSTANTIATE_TEST_SUITE_P(All, SupportedModelTest,
                         ::testing::Values("demo", "stories15M", "tiny-llama",
                                           "tiny-qwen2", "tiny-qwen3"));

using UnsupportedModelTest = SharedModelTest;
TEST_P(UnsupportedModelTest, IsRefusedByItsType) {
  const Status status = LoadModelDescription(folder_).status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(MessageOf(status), HasSubstr("model_type"));
}
INSTANTIATE_TEST_SUITE_P(All, UnsupportedModelTest,
                         ::testing::Values("tiny-qwen3-moe",
                                           "tiny-deepseek-v3"));

}  // namespace
}  // namespace tidepool::model
