#include "dataplane/model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "dataplane/model/test_util.h"

namespace tidepool::model {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFour[] = {4};
constexpr int64_t kTwoByTwo[] = {2, 2};

std::string BytesOfView(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.data.data()), view.data.size()};
}

constexpr char kTwoTensors[] =
    R"({"__metadata__":{"format":"pt"},)"
    R"("b":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},)"
    R"("a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})";
constexpr char kTwoTensorsData[] = "aaaaAAAAbbbbBBBBbbbbBBBB";

ModelConfig SmallConfig() {
  ModelConfig config;
  config.vocab_size = 50;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_layers = 2;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 8;
  config.max_position_embeddings = 64;
  config.attention_qkv_bias = true;
  return config;
}

TEST(SafetensorsTest, ReadsTensorsOfASingleFile) {
  const TempFolder folder;
  folder.Write("model.safetensors",
               SafetensorsFile(kTwoTensors, kTwoTensorsData));
  auto source = OpenSafetensors(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  const auto a = (*source)->Get("a", kFour);
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->dtype, DType::kBFloat16);
  EXPECT_EQ(a->num_elements(), 4);
  EXPECT_EQ(BytesOfView(*a), "aaaaAAAA");
  const auto b = (*source)->Get("b", kTwoByTwo);
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(b->dtype, DType::kFloat32);
  EXPECT_EQ(BytesOfView(*b), "bbbbBBBBbbbbBBBB");
}

TEST(SafetensorsTest, GetNamesWhatDoesNotFit) {
  const TempFolder folder;
  folder.Write("model.safetensors",
               SafetensorsFile(
                   R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},)"
                   R"("q":{"dtype":"I8","shape":[4],"data_offsets":[8,12]}})",
                   "aaaaAAAAqqqq"));
  auto source = OpenSafetensors(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  const Status missing = (*source)->Get("c", kFour).status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(MessageOf(missing), HasSubstr("\"c\""));
  const Status shape = (*source)->Get("a", kTwoByTwo).status();
  EXPECT_EQ(shape.code(), Code::kInvalidArgument);
  EXPECT_THAT(MessageOf(shape), HasSubstr("model.safetensors: tensor \"a\": "
                                          "shape [4] is not the expected "
                                          "[2, 2]"));
  const Status dtype = (*source)->Get("q", kFour).status();
  EXPECT_EQ(dtype.code(), Code::kUnimplemented);
  EXPECT_THAT(MessageOf(dtype), HasSubstr("\"I8\""));
}

class ShardedTest : public ::testing::Test {
 protected:
  ShardedTest() {
    folder_.Write(
        "x.safetensors",
        SafetensorsFile(
            R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})",
            "aaaaAAAA"));
    folder_.Write(
        "y.safetensors",
        SafetensorsFile(
            R"({"b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})",
            "bbbbBBBBbbbbBBBB"));
  }

  void WriteIndex(std::string_view weight_map) {
    folder_.Write("model.safetensors.index.json",
                  fmt::format(R"({{"weight_map":{}}})", weight_map));
  }

  TempFolder folder_;
};

TEST_F(ShardedTest, HasTheDigestOfTheSameTensorsInOneFile) {
  WriteIndex(R"({"a":"x.safetensors","b":"y.safetensors"})");
  auto sharded = OpenSafetensors(folder_.path());
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  const auto b = (*sharded)->Get("b", kTwoByTwo);
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(BytesOfView(*b), "bbbbBBBBbbbbBBBB");

  const TempFolder single_folder;
  single_folder.Write("model.safetensors",
                      SafetensorsFile(kTwoTensors, kTwoTensorsData));
  auto single = OpenSafetensors(single_folder.path());
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_EQ(*(*sharded)->Digest(), *(*single)->Digest());
}

TEST_F(ShardedTest, RefusesAnIndexThatDisagreesWithTheShards) {
  for (const auto& [weight_map, message] :
       std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"a":"x.safetensors","b":"x.safetensors"})", "\"b\" is missing"},
           {R"({"b":"y.safetensors","c":"y.safetensors"})", "\"c\" is missing"},
           {R"({"a":"y.safetensors","b":"y.safetensors"})", "\"a\" is missing"},
           {R"({"b":"x.safetensors","c":"y.safetensors"})",
            "x.safetensors: tensor \"a\""}}) {
    WriteIndex(weight_map);
    const Status status = OpenSafetensors(folder_.path()).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(message));
  }
}

TEST_F(ShardedTest, RefusesATensorThatTwoShardsHold) {
  folder_.Write("z.safetensors",
                SafetensorsFile(
                    R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},)"
                    R"("c":{"dtype":"BF16","shape":[1],"data_offsets":[2,4]}})",
                    "aacc"));
  WriteIndex(R"({"a":"x.safetensors","c":"z.safetensors"})");
  const Status status = OpenSafetensors(folder_.path()).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("z.safetensors: tensor \"a\""));
}

TEST_F(ShardedTest, NeverLeavesTheFolder) {
  for (const char* file :
       {"../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..",
        ".safetensors", "x.bin", ""}) {
    WriteIndex(fmt::format(R"({{"a":"{}"}})", file));
    const Status status = OpenSafetensors(folder_.path()).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
    EXPECT_THAT(MessageOf(status),
                HasSubstr("model.safetensors.index.json: weight_map: \"a\""));
  }
}

TEST_F(ShardedTest, NamesAShardThatIsMissing) {
  WriteIndex(R"({"a":"gone.safetensors"})");
  const Status status = OpenSafetensors(folder_.path()).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(MessageOf(status), HasSubstr("gone.safetensors"));
}

TEST_F(ShardedTest, RefusesABrokenIndex) {
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map":3})", R"({"weight_map":{}})",
        R"({"weight_map":{"a":7}})",
        R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})"}) {
    folder_.Write("model.safetensors.index.json", text);
    EXPECT_EQ(OpenSafetensors(folder_.path()).status().code(),
              Code::kInvalidArgument)
        << text;
  }
}

TEST(SafetensorsTest, AFolderWithoutWeightsSaysSo) {
  const TempFolder folder;
  const Status status = OpenSafetensors(folder.path()).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(MessageOf(status), HasSubstr("model.safetensors.index.json"));
}

TEST(SafetensorsTest, RefusesWhatIsNoFile) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.Path("model.safetensors"));
  EXPECT_EQ(OpenSafetensors(folder.path()).status().code(),
            Code::kInvalidArgument);
}

TEST(SafetensorsTest, DigestSeesEveryKindOfDifference) {
  const auto digest_of = [](std::string_view header, std::string_view data) {
    const TempFolder folder;
    folder.Write("model.safetensors", SafetensorsFile(header, data));
    return OpenSafetensors(folder.path()).value()->Digest().value().Hex();
  };
  const std::string digests[] = {
      digest_of(R"({"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})",
                "aaaaaaaa"),
      digest_of(R"({"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})",
                "aaaaaaab"),
      digest_of(R"({"a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}})",
                "aaaaaaaa"),
      digest_of(R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})",
                "aaaaaaaa"),
      digest_of(R"({"b":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})",
                "aaaaaaaa")};
  EXPECT_EQ(
      std::set<std::string>(std::begin(digests), std::end(digests)).size(),
      std::size(digests));
}

TEST(DummyWeightsTest, MakesEveryTensorOfTheConfiguration) {
  const ModelConfig config = SmallConfig();
  const auto source = MakeDummyWeights(config, 1);
  for (const TensorSpec& spec : TensorsOf(config)) {
    const auto view = source->Get(spec.name, spec.shape);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->shape, spec.shape);
    EXPECT_EQ(view->data.size(), 2u * view->num_elements());
  }
  EXPECT_EQ(source->Get("lm_tail.weight", kFour).status().code(),
            Code::kNotFound);
  EXPECT_EQ(source->Get("lm_head.weight", kFour).status().code(),
            Code::kInvalidArgument);
}

std::vector<float> Floats(const TensorView& view) {
  std::vector<float> values(view.num_elements());
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half;
    std::memcpy(&half, view.data.data() + 2 * i, 2);
    const uint32_t bits = uint32_t{half} << 16;
    std::memcpy(&values[i], &bits, 4);
  }
  return values;
}

TEST(DummyWeightsTest, ValuesKeepTheScaleOfActivations) {
  ModelConfig config = SmallConfig();
  config.hidden_size = 128;
  const auto source = MakeDummyWeights(config, 1);
  const int64_t norm_shape[] = {128};
  for (const float value :
       Floats(*source->Get("model.norm.weight", norm_shape)))
    EXPECT_EQ(value, 1);
  const int64_t shape[] = {24, 128};
  const std::vector<float> values =
      Floats(*source->Get("model.layers.0.mlp.up_proj.weight", shape));
  double sum = 0, squares = 0;
  for (const float value : values) {
    EXPECT_LT(std::abs(value), std::sqrt(3.0 / 128) * 1.01);
    sum += value;
    squares += value * value;
  }
  // 3,072 draws: the mean of values with deviation 0.088 is within 5 sigma.
  EXPECT_NEAR(sum / values.size(), 0, 0.008);
  EXPECT_NEAR(squares / values.size() * 128, 1, 0.1);
}

TEST(DummyWeightsTest, BytesAreTheSameEverywhere) {
  const ModelConfig config = SmallConfig();
  const auto source = MakeDummyWeights(config, 42);
  const int64_t shape[] = {50, 16};
  const auto view = source->Get("model.embed_tokens.weight", shape);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(Checksum64(view->data), 16759488708754006352u);
}

TEST(DummyWeightsTest, DependOnSeedAndNameOnly) {
  const ModelConfig config = SmallConfig();
  ModelConfig deeper = config;
  deeper.num_layers = 3;
  const auto a = MakeDummyWeights(config, 1);
  const auto b = MakeDummyWeights(deeper, 1);
  const auto c = MakeDummyWeights(config, 2);
  const int64_t shape[] = {24, 16};
  const std::string up = "model.layers.1.mlp.up_proj.weight";
  const std::string gate = "model.layers.1.mlp.gate_proj.weight";
  const std::string of_a = BytesOfView(*a->Get(up, shape));
  EXPECT_EQ(of_a, BytesOfView(*b->Get(up, shape)));
  EXPECT_NE(of_a, BytesOfView(*c->Get(up, shape)));
  EXPECT_NE(of_a, BytesOfView(*a->Get(gate, shape)));
  EXPECT_EQ(*a->Digest(), *MakeDummyWeights(config, 1)->Digest());
  EXPECT_NE(*a->Digest(), *b->Digest());
  EXPECT_NE(*a->Digest(), *c->Digest());
}

TEST(WriteSafetensorsTest, WhatIsWrittenIsReadBack) {
  const TempFolder folder;
  const ModelConfig config = SmallConfig();
  const auto dummy = MakeDummyWeights(config, 3);
  ASSERT_TRUE(
      WriteSafetensors(config, *dummy, folder.Path("model.safetensors")).ok());
  auto file = OpenSafetensors(folder.path());
  ASSERT_TRUE(file.ok()) << file.status();
  for (const TensorSpec& spec : TensorsOf(config)) {
    const auto written = (*file)->Get(spec.name, spec.shape);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(written->dtype, DType::kBFloat16);
    EXPECT_EQ(BytesOfView(*written),
              BytesOfView(*dummy->Get(spec.name, spec.shape)));
  }
}

TEST(WriteSafetensorsTest, AFullDiskIsAnError) {
  const ModelConfig config = SmallConfig();
  const auto dummy = MakeDummyWeights(config, 3);
  const Status status = WriteSafetensors(config, *dummy, "/dev/full");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(MessageOf(status), HasSubstr("/dev/full"));
}

}  // namespace
}  // namespace tidepool::model
