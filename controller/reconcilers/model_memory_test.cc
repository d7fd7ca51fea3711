#include "controller/reconcilers/model_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidepool::reconcilers {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr uint64_t kGi = 1ull << 30;

// Llama 3.1 8B: 16 GB of bfloat16, 8 KV heads of 128 in 32 layers.
json Llama() {
  return {{"num_hidden_layers", 32},   {"num_attention_heads", 32},
          {"num_key_value_heads", 8},  {"hidden_size", 4096},
          {"torch_dtype", "bfloat16"}, {"max_position_embeddings", 131072}};
}
ModelFigures LlamaFigures() { return *FiguresOf(Llama(), 16 * kGi, "auto"); }

TEST(FiguresOfTest, CountsKvPerToken) {
  EXPECT_EQ(LlamaFigures().kv_bytes_per_token, 32u * 2 * 8 * 128 * 2);
  EXPECT_EQ(LlamaFigures().weight_bytes, 16 * kGi);
  const auto wide = FiguresOf(Llama(), 16 * kGi, "float32");
  EXPECT_EQ(wide->kv_bytes_per_token, 32u * 2 * 8 * 128 * 4);
  EXPECT_EQ(wide->weight_bytes, 32 * kGi);
}

// As in files of newer libraries, and of old ones.
TEST(FiguresOfTest, TheStoredTypeIsReadAsTheEngineReadsIt) {
  const auto figures = [](const char* field, const char* type) {
    json config = Llama();
    config.erase("torch_dtype");
    if (field != nullptr) config[field] = type;
    return *FiguresOf(config, 16 * kGi, "auto");
  };
  const ModelFigures narrow = figures("dtype", "bfloat16");
  EXPECT_EQ(narrow, LlamaFigures());
  const ModelFigures wide = figures("dtype", "float32");
  EXPECT_EQ(wide.weight_bytes, 16 * kGi);
  EXPECT_EQ(wide.kv_bytes_per_token, 2 * narrow.kv_bytes_per_token);
  EXPECT_EQ(figures(nullptr, nullptr), wide);
}

TEST(FiguresOfTest, LatentAttentionKeepsOneVectorPerToken) {
  json config = Llama();
  config["kv_lora_rank"] = 512;
  config["qk_rope_head_dim"] = 64;
  EXPECT_EQ(FiguresOf(config, kGi, "auto")->kv_bytes_per_token,
            32u * (512 + 64) * 2);
}

TEST(FiguresOfTest, NamesWhatIsMissingOrAbsurd) {
  const auto message = [](const char* name, const json& value) {
    json config = Llama();
    config[name] = value;
    return std::string(FiguresOf(config, kGi, "auto").status().message());
  };
  EXPECT_THAT(message("num_hidden_layers", nullptr),
              HasSubstr("num_hidden_layers is missing"));
  EXPECT_THAT(message("num_hidden_layers", -1), HasSubstr("not within"));
  EXPECT_THAT(message("num_attention_heads", 0), HasSubstr("not within"));
  EXPECT_THAT(message("head_dim", 1ll << 60), HasSubstr("not within"));
  EXPECT_THAT(message("max_position_embeddings", "many"),
              HasSubstr("is missing"));
  EXPECT_FALSE(FiguresOf(json::array(), kGi, "auto").ok());
  EXPECT_FALSE(FiguresOf(Llama(), UINT64_MAX, "auto").ok());
}

TEST(PlanMemoryTest, UnknownSizesPassOnWhatIsStated) {
  const auto plan = PlanMemory({.kv_bytes = kGi, .limit_bytes = 4 * kGi});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->memory_bytes, 4 * kGi);
  EXPECT_EQ(plan->kv_bytes, kGi);
  EXPECT_EQ(PlanMemory({})->memory_bytes, 0u);
  EXPECT_EQ(PlanMemory({.why_unknown = "on a volume"})->arithmetic,
            "on a volume");
}

TEST(PlanMemoryTest, WhatIsDownloadedMustFitItsFolder) {
  MemoryInputs inputs{.model = *FiguresOf(Llama(), 140 * kGi, "auto"),
                      .cache_bytes_max = 140 * kGi};
  EXPECT_TRUE(PlanMemory(inputs).ok());
  inputs.cache_bytes_max = 64 * kGi;
  const Status refused = PlanMemory(inputs).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the model's files are 140.0 GiB, but "
                        "spec.model.cache holds 64.0 GiB"));
}

// As workers count it, which refuse to start with less.
TEST(PlanMemoryTest, KvIsWholePages) {
  const auto plan = PlanMemory(
      {.model = DemoFigures("auto"), .max_num_seqs = 1, .max_model_len = 1000});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->kv_bytes, 1024u * 3072);
}

TEST(PlanMemoryTest, MoreContextThanTheModelHasIsRefused) {
  const auto plan =
      PlanMemory({.model = DemoFigures("auto"), .max_model_len = 2049});
  ASSERT_EQ(plan.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(plan.status().message()),
              HasSubstr("spec.maxModelLen: 2049"));
}

TEST(PlanMemoryTest, DerivesMemoryFromWeightsKvAndMargin) {
  const auto plan = PlanMemory({.model = LlamaFigures(), .kv_bytes = 8 * kGi});
  ASSERT_TRUE(plan.ok());
  const uint64_t total =
      16 * kGi + 8 * kGi + kMarginBytes + 16 * kGi / kMarginWeightDivisor;
  EXPECT_GE(plan->memory_bytes, total);
  EXPECT_LT(plan->memory_bytes, total + (1 << 20));
  EXPECT_THAT(plan->arithmetic, HasSubstr("weights 16.0 GiB + KV 8.0 GiB"));
}

TEST(PlanMemoryTest, KvIsHalfTheWeightsUnlessStated) {
  EXPECT_EQ(PlanMemory({.model = LlamaFigures()})->kv_bytes, 8 * kGi);
  // A small model does not need more than its sequences can use.
  EXPECT_EQ(
      PlanMemory({.model = DemoFigures("auto"), .max_num_seqs = 4})->kv_bytes,
      4u * 2048 * 3072);
}

TEST(PlanMemoryTest, AStatedLimitIsUsedForKv) {
  const auto plan =
      PlanMemory({.model = LlamaFigures(), .limit_bytes = 64 * kGi});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->memory_bytes, 64 * kGi);
  EXPECT_EQ(plan->kv_bytes, 64 * kGi - 16 * kGi - kMarginBytes -
                                16 * kGi / kMarginWeightDivisor);
}

TEST(PlanMemoryTest, AModelThatCannotFitIsRefusedWithTheArithmetic) {
  const auto plan =
      PlanMemory({.model = LlamaFigures(), .limit_bytes = 17 * kGi});
  ASSERT_EQ(plan.status().code(), Code::kResourceExhausted);
  for (const char* part : {"weights 16.0 GiB", "KV ", "131072 bytes a token",
                           "margin 2.1 GiB", "limits.memory is 17.0 GiB"})
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(part));
}

TEST(PlanMemoryTest, KvMustHoldOneSequence) {
  const auto plan = PlanMemory(
      {.model = LlamaFigures(), .max_model_len = 131072, .kv_bytes = 8 * kGi});
  ASSERT_EQ(plan.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(plan.status().message()),
              HasSubstr("one takes 16.0 GiB"));
  EXPECT_FALSE(
      PlanMemory({.model = LlamaFigures(), .kv_bytes = UINT64_MAX}).ok());
}

}  // namespace
}  // namespace tidepool::reconcilers
