#include "dataplane/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "dataplane/model/test_util.h"

namespace tidepool::model {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 1000},
          {"hidden_size", 64},
          {"intermediate_size", 176},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 512},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-5},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"torch_dtype", "bfloat16"}};
}

json Qwen(int version) {
  json config = Llama();
  config["model_type"] = fmt::format("qwen{}", version);
  config["architectures"] = {fmt::format("Qwen{}ForCausalLM", version)};
  return config;
}

json With(json config, const json& patch) {
  config.merge_patch(patch);  // null removes
  return config;
}

json Llama3Rope() {
  return {{"rope_type", "llama3"},
          {"factor", 32.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

Status ErrorOf(const json& config) {
  return ParseModelConfig(config.dump()).status();
}

TEST(ModelConfigTest, ReadsEveryFieldOfALlama) {
  const auto config = ParseModelConfig(Llama().dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, Architecture::kLlama);
  EXPECT_EQ(config->vocab_size, 1000);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->intermediate_size, 176);
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->max_position_embeddings, 512);
  EXPECT_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_FALSE(config->rope_scaling.has_value());
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_FALSE(config->attention_qkv_bias);
  EXPECT_FALSE(config->attention_output_bias);
  EXPECT_FALSE(config->mlp_bias);
  EXPECT_FALSE(config->qk_norm);
  EXPECT_EQ(config->dtype, DType::kBFloat16);
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
}

TEST(ModelConfigTest, FamiliesDifferInBiasesNormsAndHeadDim) {
  const auto llama = ParseModelConfig(
      With(Llama(), {{"attention_bias", true}, {"mlp_bias", true}}).dump());
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_TRUE(llama->attention_qkv_bias);
  EXPECT_TRUE(llama->attention_output_bias);
  EXPECT_TRUE(llama->mlp_bias);

  const auto qwen2 = ParseModelConfig(Qwen(2).dump());
  ASSERT_TRUE(qwen2.ok()) << qwen2.status();
  EXPECT_TRUE(qwen2->attention_qkv_bias);
  EXPECT_FALSE(qwen2->attention_output_bias);
  EXPECT_FALSE(qwen2->qk_norm);
  EXPECT_EQ(qwen2->head_dim, 16);

  const auto qwen3 = ParseModelConfig(Qwen(3).dump());
  ASSERT_TRUE(qwen3.ok()) << qwen3.status();
  EXPECT_FALSE(qwen3->attention_qkv_bias);
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_EQ(qwen3->head_dim, 128);
}

TEST(ModelConfigTest, AbsentFieldsTakeTheReferenceDefaults) {
  json text = Llama();
  for (const char* name : {"num_key_value_heads", "rms_norm_eps", "hidden_act",
                           "bos_token_id", "eos_token_id", "torch_dtype"}) {
    text.erase(name);
  }
  const auto config = ParseModelConfig(text.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->dtype, DType::kFloat32);
  EXPECT_EQ(config->bos_token_id, std::nullopt);
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
}

TEST(ModelConfigTest, ReadsBothFormsOfRopeParameters) {
  const auto old_form = ParseModelConfig(
      With(Llama(), {{"rope_theta", 500000.0}, {"rope_scaling", Llama3Rope()}})
          .dump());
  ASSERT_TRUE(old_form.ok()) << old_form.status();
  json parameters = Llama3Rope();
  parameters["rope_theta"] = 500000;
  const auto new_form =
      ParseModelConfig(With(Llama(), {{"rope_parameters", parameters}}).dump());
  ASSERT_TRUE(new_form.ok()) << new_form.status();
  for (const auto* config : {&*old_form, &*new_form}) {
    EXPECT_EQ(config->rope_theta, 500000);
    ASSERT_TRUE(config->rope_scaling.has_value());
    EXPECT_EQ(config->rope_scaling->factor, 32);
    EXPECT_EQ(config->rope_scaling->low_freq_factor, 1);
    EXPECT_EQ(config->rope_scaling->high_freq_factor, 4);
    EXPECT_EQ(config->rope_scaling->original_max_position_embeddings, 8192);
  }
}

TEST(ModelConfigTest, DefaultRopeMayBeSpelledOut) {
  for (const char* name : {"type", "rope_type"}) {
    const auto config = ParseModelConfig(
        With(Llama(), {{"rope_scaling", {{name, "default"}}}}).dump());
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_FALSE(config->rope_scaling.has_value());
  }
}

TEST(ModelConfigTest, SlidingWindowThatNoLayerUsesIsAccepted) {
  for (const json& patch : std::initializer_list<json>{
           {{"sliding_window", 4096}, {"use_sliding_window", false}},
           {{"sliding_window", 4096}},
           {{"sliding_window", 4096},
            {"use_sliding_window", true},
            {"max_window_layers", 2}},
           {{"layer_types", {"full_attention", "full_attention"}}}}) {
    EXPECT_TRUE(ErrorOf(With(Qwen(2), patch)).ok()) << patch;
  }
}

struct Refusal {
  json config;
  Code code;
  std::string message;  // a part of it
};

TEST(ModelConfigTest, RefusesWhatItDoesNotSupportByName) {
  const Refusal refusals[] = {
      {With(Llama(), {{"model_type", "mistral"}}), Code::kUnimplemented,
       "model_type: \"mistral\""},
      {With(Llama(), {{"architectures", {"GPT2LMHeadModel"}}}),
       Code::kUnimplemented, "architectures: \"GPT2LMHeadModel\""},
      {With(Llama(), {{"hidden_act", "gelu"}}), Code::kUnimplemented,
       "hidden_act: \"gelu\""},
      {With(Llama(), {{"quantization_config", {{"bits", 4}}}}),
       Code::kUnimplemented, "quantization_config"},
      {With(Llama(), {{"num_local_experts", 8}}), Code::kUnimplemented,
       "num_local_experts"},
      {With(Llama(), {{"sliding_window", 4096}}), Code::kUnimplemented,
       "sliding_window"},
      {With(Qwen(2), {{"sliding_window", 4096},
                      {"use_sliding_window", true},
                      {"max_window_layers", 1}}),
       Code::kUnimplemented, "sliding_window"},
      {With(Qwen(3),
            {{"layer_types", {"full_attention", "sliding_attention"}}}),
       Code::kUnimplemented, "layer_types: \"sliding_attention\""},
      {With(Llama(), {{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}}}),
       Code::kUnimplemented, "rope_scaling.rope_type: \"yarn\""},
      {With(Llama(),
            {{"rope_parameters", {{"full_attention", json::object()}}}}),
       Code::kUnimplemented, "rope_parameters.full_attention"},
      {With(Llama(), {{"partial_rotary_factor", 0.5}}), Code::kUnimplemented,
       "partial_rotary_factor: 0.5"},
      {With(Llama(), {{"torch_dtype", "float8_e4m3fn"}}), Code::kUnimplemented,
       "torch_dtype: \"float8_e4m3fn\""}};
  for (const Refusal& refusal : refusals) {
    const Status status = ErrorOf(refusal.config);
    EXPECT_EQ(status.code(), refusal.code) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(refusal.message));
  }
}

TEST(ModelConfigTest, RefusesImpossibleValuesByName) {
  json low_above_high = Llama3Rope();
  low_above_high["low_freq_factor"] = 8.0;
  json no_factor = Llama3Rope();
  no_factor.erase("factor");
  const Refusal refusals[] = {
      {With(Llama(), {{"vocab_size", nullptr}}), {}, "vocab_size: missing"},
      {With(Llama(), {{"vocab_size", 0}}), {}, "vocab_size: 0 is outside"},
      {With(Llama(), {{"vocab_size", -5}}), {}, "vocab_size: -5 is outside"},
      {With(Llama(), {{"vocab_size", 1000.0}}),
       {},
       "vocab_size: expected an integer"},
      {With(Llama(), {{"vocab_size", "1000"}}),
       {},
       "vocab_size: expected an integer, found string"},
      {With(Llama(), {{"vocab_size", true}}),
       {},
       "vocab_size: expected an integer, found boolean"},
      {With(Llama(), {{"hidden_size", 18446744073709551615u}}),
       {},
       "hidden_size: 18446744073709551615 is outside"},
      {With(Llama(), {{"num_hidden_layers", 1 << 20}}),
       {},
       "num_hidden_layers: 1048576 is outside"},
      {With(Llama(), {{"num_key_value_heads", 3}}),
       {},
       "num_key_value_heads: 3 does not divide"},
      {With(Llama(), {{"num_attention_heads", 6}}),
       {},
       "head_dim: missing, and num_attention_heads 6"},
      {With(Llama(), {{"head_dim", 15}}), {}, "head_dim: 15 is odd"},
      {With(Llama(), {{"rms_norm_eps", -1e-5}}), {}, "rms_norm_eps: -1e-05"},
      {With(Llama(), {{"rope_theta", 0}}), {}, "rope_theta: 0 is outside"},
      {With(Llama(), {{"tie_word_embeddings", 1}}),
       {},
       "tie_word_embeddings: expected true or false"},
      {With(Llama(), {{"eos_token_id", 1000}}), {}, "eos_token_id: 1000"},
      {With(Llama(), {{"eos_token_id", {1, "2"}}}),
       {},
       "eos_token_id: expected an integer"},
      {With(Llama(), {{"model_type", "qwen2"}}),
       {},
       "architectures: [\"LlamaForCausalLM\"] contradicts"},
      {With(Llama(), {{"architectures", {"A", "B"}}}), {}, "architectures"},
      {With(Llama(), {{"dtype", "float32"}}),
       {},
       "dtype: \"float32\" contradicts"},
      {With(Llama(),
            {{"rope_theta", 1e4}, {"rope_parameters", {{"rope_theta", 5e5}}}}),
       {},
       "rope_parameters.rope_theta: 500000 contradicts"},
      {With(Llama(),
            {{"rope_scaling", {{"type", "llama3"}, {"rope_type", "default"}}}}),
       {},
       "rope_scaling.rope_type: \"default\" contradicts"},
      {With(Llama(), {{"rope_scaling", low_above_high}}),
       {},
       "rope_scaling.low_freq_factor: 8 is not below"},
      {With(Llama(), {{"rope_scaling", no_factor}}),
       {},
       "rope_scaling.factor: missing"},
      {With(Llama(), {{"rope_scaling", 3}}), {}, "rope_scaling: expected"}};
  for (const Refusal& refusal : refusals) {
    const Status status = ErrorOf(refusal.config);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(refusal.message));
  }
}

TEST(ModelConfigTest, RefusesBrokenJson) {
  const std::string deep(100'000, '[');
  const std::pair<std::string, std::string> cases[] = {
      {"", "not valid JSON"},
      {"{\"vocab_size\": 10", "not valid JSON"},
      {"{\"rms_norm_eps\": NaN}", "not valid JSON"},
      {"{\"rope_theta\": 1e999}", "not valid JSON"},
      {"{\"vocab_size\": 1, \"vocab_size\": 2}",
       "\"vocab_size\" appears twice"},
      {"[]", "expected a JSON object, found array"},
      {deep, "nested deeper than 64"},
      {"{\"a\": \"\xff\"}", "not valid JSON"}};
  for (const auto& [text, message] : cases) {
    const Status status = ParseModelConfig(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(message));
  }
}

TEST(GenerationDefaultsTest, ReadsWhatIsThere) {
  const auto defaults = ParseGenerationDefaults(R"({
      "do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20,
      "min_p": 0, "repetition_penalty": 1.05, "eos_token_id": [7, 8, 7]})");
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->do_sample, true);
  EXPECT_EQ(defaults->temperature, 0.6);
  EXPECT_EQ(defaults->top_p, 0.95);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_EQ(defaults->min_p, 0);
  EXPECT_EQ(defaults->repetition_penalty, 1.05);
  EXPECT_THAT(defaults->eos_token_ids, ElementsAre(7, 8));
}

TEST(GenerationDefaultsTest, AbsentFieldsStayUnset) {
  const auto defaults = ParseGenerationDefaults("{}");
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->temperature, std::nullopt);
  EXPECT_EQ(defaults->top_k, std::nullopt);
  EXPECT_THAT(defaults->eos_token_ids, IsEmpty());
}

TEST(GenerationDefaultsTest, BothSpellingsOfNoTopKAreOne) {
  EXPECT_EQ(ParseGenerationDefaults(R"({"top_k": -1})")->top_k, 0);
  EXPECT_EQ(ParseGenerationDefaults(R"({"top_k": 0})")->top_k, 0);
}

TEST(GenerationDefaultsTest, RefusesImpossibleValuesByName) {
  for (const auto& [text, message] :
       std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"temperature": -1})", "temperature: -1 is outside"},
           {R"({"top_p": 1.5})", "top_p: 1.5 is outside"},
           {R"({"top_p": 0})", "top_p: 0 is outside"},
           {R"({"top_k": -2})", "top_k: -2 is outside"},
           {R"({"top_k": 2.5})", "top_k: expected an integer"},
           {R"({"repetition_penalty": 0})", "repetition_penalty: 0"},
           {R"({"eos_token_id": -1})", "eos_token_id: -1"}}) {
    const Status status = ParseGenerationDefaults(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(message));
  }
}

TEST(ModelDescriptionTest, JoinsTheEndTokensOfBothFiles) {
  const TempFolder folder;
  folder.Write("config.json", Llama().dump());
  folder.Write("generation_config.json", R"({"eos_token_id": [3, 2]})");
  const auto description = LoadModelDescription(folder.path());
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_THAT(description->config.eos_token_ids, ElementsAre(2, 3));
}

TEST(ModelDescriptionTest, NeedsNoGenerationConfig) {
  const TempFolder folder;
  folder.Write("config.json", Llama().dump());
  EXPECT_TRUE(LoadModelDescription(folder.path()).ok());
}

TEST(ModelDescriptionTest, ErrorsNameTheFile) {
  const TempFolder folder;
  EXPECT_EQ(LoadModelDescription(folder.path()).status().code(),
            Code::kNotFound);
  folder.Write("config.json", "{");
  EXPECT_THAT(MessageOf(LoadModelDescription(folder.path()).status()),
              HasSubstr("/config.json: not valid JSON"));
  folder.Write("config.json", Llama().dump());
  folder.Write("generation_config.json", R"({"eos_token_id": 5000})");
  EXPECT_THAT(MessageOf(LoadModelDescription(folder.path()).status()),
              HasSubstr("/generation_config.json: eos_token_id: 5000"));
}

TEST(TensorsOfTest, NamesEveryTensorOfALayer) {
  json text = With(
      Qwen(3),
      {{"num_hidden_layers", 1}, {"head_dim", 32}, {"attention_bias", true}});
  const auto config = ParseModelConfig(text.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string layer = "model.layers.0.";
  EXPECT_THAT(
      TensorsOf(*config),
      ElementsAre(TensorSpec{"model.embed_tokens.weight", {1000, 64}},
                  TensorSpec{layer + "input_layernorm.weight", {64}},
                  TensorSpec{layer + "self_attn.q_proj.weight", {128, 64}},
                  TensorSpec{layer + "self_attn.q_proj.bias", {128}},
                  TensorSpec{layer + "self_attn.k_proj.weight", {64, 64}},
                  TensorSpec{layer + "self_attn.k_proj.bias", {64}},
                  TensorSpec{layer + "self_attn.v_proj.weight", {64, 64}},
                  TensorSpec{layer + "self_attn.v_proj.bias", {64}},
                  TensorSpec{layer + "self_attn.q_norm.weight", {32}},
                  TensorSpec{layer + "self_attn.k_norm.weight", {32}},
                  TensorSpec{layer + "self_attn.o_proj.weight", {64, 128}},
                  TensorSpec{layer + "self_attn.o_proj.bias", {64}},
                  TensorSpec{layer + "post_attention_layernorm.weight", {64}},
                  TensorSpec{layer + "mlp.gate_proj.weight", {176, 64}},
                  TensorSpec{layer + "mlp.up_proj.weight", {176, 64}},
                  TensorSpec{layer + "mlp.down_proj.weight", {64, 176}},
                  TensorSpec{"model.norm.weight", {64}},
                  TensorSpec{"lm_head.weight", {1000, 64}}));
}

TEST(TensorsOfTest, TiedEmbeddingsNeedNoHead) {
  const auto config =
      ParseModelConfig(With(Llama(), {{"tie_word_embeddings", true}}).dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(TensorsOf(*config).back().name, "model.norm.weight");
}

}  // namespace
}  // namespace tidepool::model
