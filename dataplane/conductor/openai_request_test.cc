#include "dataplane/conductor/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

#include "dataplane/conductor/api_error.h"

namespace tidepool::conductor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr RequestLimits kLimits{
    .vocab_size = 100, .max_model_len = 50, .choices_max = 8};

worker::v1::SamplingParams Defaults() {
  worker::v1::SamplingParams defaults;
  defaults.set_temperature(0.7f);
  defaults.set_top_p(0.9f);
  defaults.set_repetition_penalty(1);
  return defaults;
}

StatusOr<GenerationCall> Completion(std::string_view fields) {
  return ParseCompletion(fmt::format(R"({{"model":"m","prompt":"hi"{}{}}})",
                                     fields.empty() ? "" : ",", fields),
                         kLimits, Defaults());
}
StatusOr<GenerationCall> Chat(std::string_view fields) {
  return ParseChat(
      fmt::format(
          R"({{"model":"m","messages":[{{"role":"user","content":"hi"}}]{}{}}})",
          fields.empty() ? "" : ",", fields),
      kLimits, Defaults());
}

ApiError ErrorOf(const Status& status) { return ToApiError(status); }

struct BadField {
  const char* fields;
  const char* param;
};

TEST(OpenAiRequestTest, NamesTheFieldAtFault) {
  const BadField cases[] = {
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":2.1)", "temperature"},
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":true)", "temperature"},
      {R"("temperature":[1])", "temperature"},
      {R"("top_p":0)", "top_p"},
      {R"("top_p":1.1)", "top_p"},
      {R"("min_p":-1)", "min_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("top_k":9223372036854775807)", "top_k"},
      {R"("top_k":18446744073709551615)", "top_k"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("presence_penalty":3)", "presence_penalty"},
      {R"("frequency_penalty":-3)", "frequency_penalty"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("max_tokens":1e300)", "max_tokens"},
      {R"("max_tokens":2147483648)", "max_tokens"},
      {R"("max_tokens":"5")", "max_tokens"},
      {R"("min_tokens":17)", "min_tokens"},
      {R"("min_tokens":-1)", "min_tokens"},
      {R"("n":0)", "n"},
      {R"("n":9)", "n"},
      {R"("n":129)", "n"},
      {R"("best_of":3)", "best_of"},
      {R"("seed":1.5)", "seed"},
      {R"("seed":9223372036854775808)", "seed"},
      {R"("stop":"")", "stop"},
      {R"("stop":["a",""])", "stop[1]"},
      {R"("stop":["a",5])", "stop[1]"},
      {R"("stop":7)", "stop"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])",
       "stop"},
      {R"("stop_token_ids":[100])", "stop_token_ids[0]"},
      {R"("stop_token_ids":5)", "stop_token_ids"},
      {R"("logit_bias":{"100":1})", "logit_bias"},
      {R"("logit_bias":{"-1":1})", "logit_bias"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"5":101})", "logit_bias.5"},
      {R"("logit_bias":{"5":"a"})", "logit_bias.5"},
      {R"("logit_bias":{"5":1,"05":1})", "logit_bias.5"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("stream":1)", "stream"},
      {R"("stream":"yes")", "stream"},
      {R"("stream_options":{})", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})",
       "stream_options.include_usage"},
      {R"("stream":true,"stream_options":{"other":1})", "stream_options.other"},
      {R"("stream":true,"stream_options":[])", "stream_options"},
      {R"("stream":true,"prompt_logprobs":1)", "prompt_logprobs"},
      {R"("logprobs":21)", "logprobs"},
      {R"("logprobs":true)", "logprobs"},
      {R"("prompt_logprobs":-1)", "prompt_logprobs"},
      {R"("response_format":{"type":"json_object"})", "response_format.type"},
      {R"("response_format":"text")", "response_format"},
      {R"("suffix":"end")", "suffix"},
      {R"("use_beam_search":true)", "use_beam_search"},
      {R"("length_penalty":2)", "length_penalty"},
      {R"("priority":1)", "priority"},
      {R"("truncate_prompt_tokens":5)", "truncate_prompt_tokens"},
      {R"("structured_outputs":{})", "structured_outputs"},
      {R"("cache_salt":"")", "cache_salt"},
      {R"("temprature":1)", "temprature"},
      {R"("messages":[])", "messages"},
      {R"("n":1,"n":1)", "n"},
      {R"("prompt":"again")", "prompt"},
  };
  for (const BadField& bad : cases) {
    const auto call = Completion(bad.fields);
    ASSERT_FALSE(call.ok()) << bad.fields;
    const ApiError error = ErrorOf(call.status());
    EXPECT_EQ(error.status, 400) << bad.fields;
    EXPECT_EQ(error.param, bad.param) << bad.fields;
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_THAT(error.message, HasSubstr(bad.param)) << bad.fields;
  }
}

TEST(OpenAiRequestTest, RepeatsWhatIsWrongInWholeCharacters) {
  std::string name = "a";
  for (int i = 0; i < 100; ++i) name += "é";
  for (const std::string& fields :
       {fmt::format(R"("{}":1)", name),
        fmt::format(R"("logit_bias":{{"{}":1}})", name)}) {
    const auto call = Completion(fields);
    ASSERT_FALSE(call.ok());
    const std::string answer = ErrorOf(call.status()).Json();
    EXPECT_TRUE(simdjson::validate_utf8(answer.data(), answer.size()));
    EXPECT_THAT(answer, HasSubstr("aéé"));
  }
}

TEST(OpenAiRequestTest, NamesTheChatFieldAtFault) {
  const BadField cases[] = {
      {R"("logprobs":1)", "logprobs"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("max_completion_tokens":0)", "max_completion_tokens"},
      {R"("modalities":["audio"])", "modalities"},
      {R"("audio":{})", "audio"},
      {R"("functions":[])", "functions"},
      {R"("function_call":"auto")", "function_call"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":{"type":"function"})", "tool_choice"},
      {R"("tool_choice":"sometimes")", "tool_choice"},
      {R"("tools":{})", "tools"},
      {R"("tools":[1])", "tools[0]"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
      {R"("chat_template":"{{ 1 }}")", "chat_template"},
      {R"("store":true)", "store"},
      {R"("echo":true)", "echo"},
      {R"("prompt":"hi")", "prompt"},
      {R"("suffix":"x")", "suffix"},
  };
  for (const BadField& bad : cases) {
    const auto call = Chat(bad.fields);
    ASSERT_FALSE(call.ok()) << bad.fields;
    EXPECT_EQ(ErrorOf(call.status()).status, 400) << bad.fields;
    EXPECT_EQ(ErrorOf(call.status()).param, bad.param) << bad.fields;
  }
}

TEST(OpenAiRequestTest, RefusesMalformedMessages) {
  const BadField cases[] = {
      {R"([])", "messages"},
      {R"({})", "messages"},
      {R"("hi")", "messages"},
      {R"(["hi"])", "messages[0]"},
      {R"([{"content":"hi"}])", "messages[0]"},
      {R"([{"role":"","content":"hi"}])", "messages[0]"},
      {R"([{"role":5}])", "messages[0]"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"user","content":["hi"]}])", "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"text":"hi"}]}])",
       "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"type":"text"}]}])",
       "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"type":"image_url"}]}])",
       "messages[0].content[0].type"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"x"}}]}])",
       "messages[0].tool_calls"},
  };
  for (const BadField& bad : cases) {
    const auto call =
        ParseChat(fmt::format(R"({{"model":"m","messages":{}}})", bad.fields),
                  kLimits, Defaults());
    ASSERT_FALSE(call.ok()) << bad.fields;
    EXPECT_EQ(ErrorOf(call.status()).param, bad.param) << bad.fields;
  }
}

TEST(OpenAiRequestTest, RefusesWhatIsNoJsonObject) {
  const std::string deep(100000, '[');
  for (const std::string& body :
       {std::string(), std::string("{"), std::string(R"({"model":"m")"),
        std::string("[]"), std::string("null"), std::string("7"),
        std::string(R"({"temperature":NaN})"),
        std::string(R"({"temperature":Infinity})"),
        std::string(R"({"temperature":1e999})"),
        std::string(R"({"n":123456789012345678901234567890})"),
        std::string("{\"model\":\"\xff\xfe\"}"), std::string("{}{}"),
        std::string("{\"model\":\"a\nb\"}"), std::string(1, '\0'),
        "{\"prompt\":" + deep, deep + std::string(100000, ']')}) {
    const auto call = ParseCompletion(body, kLimits, Defaults());
    ASSERT_FALSE(call.ok()) << body.substr(0, 50);
    EXPECT_EQ(ErrorOf(call.status()).status, 400);
    EXPECT_EQ(ErrorOf(call.status()).code, "invalid_json")
        << body.substr(0, 50);
  }
}

TEST(OpenAiRequestTest, RequiresModelAndPrompt) {
  const auto no_model =
      ParseCompletion(R"({"prompt":"x"})", kLimits, Defaults());
  EXPECT_EQ(ErrorOf(no_model.status()).param, "model");
  const auto no_prompt =
      ParseCompletion(R"({"model":"m"})", kLimits, Defaults());
  EXPECT_EQ(ErrorOf(no_prompt.status()).param, "prompt");
  const auto no_messages = ParseChat(R"({"model":"m"})", kLimits, Defaults());
  EXPECT_EQ(ErrorOf(no_messages.status()).param, "messages");
}

StatusOr<GenerationCall> WithPrompt(std::string_view prompt) {
  return ParseCompletion(fmt::format(R"({{"model":"m","prompt":{}}})", prompt),
                         kLimits, Defaults());
}

TEST(OpenAiRequestTest, TakesPromptsInAllShapes) {
  const auto text = WithPrompt(R"("a")");
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(text->prompts, ElementsAre(Prompt("a")));
  const auto texts = WithPrompt(R"(["a","b"])");
  ASSERT_TRUE(texts.ok());
  EXPECT_THAT(texts->prompts, ElementsAre(Prompt("a"), Prompt("b")));
  const auto ids = WithPrompt("[1,2,99]");
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(ids->prompts,
              ElementsAre(Prompt(std::vector<int32_t>{1, 2, 99})));
  const auto lists = WithPrompt("[[1],[2,3]]");
  ASSERT_TRUE(lists.ok());
  EXPECT_THAT(lists->prompts, ElementsAre(Prompt(std::vector<int32_t>{1}),
                                          Prompt(std::vector<int32_t>{2, 3})));
}

TEST(OpenAiRequestTest, RefusesBadPrompts) {
  for (const char* prompt :
       {"[]", "{}", "5", "true", "[100]", "[-1]", "[1.5]", R"([1,"a"])",
        R"(["a",1])", "[[]]", "[[1],[]]", "[[1],2]", "[[[1]]]", "[null]",
        "[9223372036854775807]", "[1e30]"}) {
    const auto call = WithPrompt(prompt);
    ASSERT_FALSE(call.ok()) << prompt;
    EXPECT_THAT(ErrorOf(call.status()).param, HasSubstr("prompt")) << prompt;
  }
  std::string long_prompt = "[1";
  for (int i = 0; i < 50; ++i) long_prompt += ",1";
  EXPECT_EQ(ErrorOf(WithPrompt(long_prompt + "]").status()).code,
            "context_length_exceeded");
  EXPECT_FALSE(WithPrompt(R"(["1","2","3","4","5","6","7","8","9"])").ok());
}

TEST(OpenAiRequestTest, ModelDefaultsHoldUntilTheCallSaysOtherwise) {
  const auto plain = Completion("");
  ASSERT_TRUE(plain.ok());
  EXPECT_FLOAT_EQ(plain->sampling.temperature(), 0.7f);
  EXPECT_FLOAT_EQ(plain->sampling.top_p(), 0.9f);
  EXPECT_EQ(plain->sampling.logprobs(), -1);
  EXPECT_EQ(plain->sampling.prompt_logprobs(), -1);
  const auto own = Completion(R"("temperature":0,"top_p":null,"top_k":-1)");
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->sampling.temperature(), 0);
  EXPECT_FLOAT_EQ(own->sampling.top_p(), 0.9f);
  EXPECT_EQ(own->sampling.top_k(), 0);
}

TEST(OpenAiRequestTest, ReadsEveryFieldItHonours) {
  const auto call = Completion(
      R"("temperature":1,"top_p":0.5,"top_k":7,"min_p":0.1,"seed":-1,)"
      R"("repetition_penalty":1.5,"presence_penalty":-1,"n":2,"best_of":2,)"
      R"("frequency_penalty":2,"logit_bias":{"5":-100,"6":1.5},)"
      R"("max_tokens":10.0,"min_tokens":3,"stop":["a","b"],"logprobs":3,)"
      R"("stop_token_ids":[4],"ignore_eos":true,"stream":true,"echo":true,)"
      R"("stream_options":{"include_usage":true,)"
      R"("continuous_usage_stats":true,"include_obfuscation":false},)"
      R"("return_token_ids":true,"return_tokens_as_token_ids":true,)"
      R"("skip_special_tokens":false,"include_stop_str_in_output":true,)"
      R"("add_special_tokens":false,"cache_salt":"s","user":"u",)"
      R"("response_format":{"type":"text"},"suffix":null)");
  ASSERT_TRUE(call.ok()) << call.status();
  const worker::v1::SamplingParams& sampling = call->sampling;
  EXPECT_EQ(sampling.top_k(), 7);
  EXPECT_FLOAT_EQ(sampling.min_p(), 0.1f);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty(), 1.5f);
  EXPECT_FLOAT_EQ(sampling.presence_penalty(), -1);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty(), 2);
  ASSERT_EQ(sampling.logit_bias_size(), 2);
  EXPECT_EQ(sampling.logit_bias(0).token(), 5);
  EXPECT_FLOAT_EQ(sampling.logit_bias(1).bias(), 1.5f);
  EXPECT_EQ(sampling.min_tokens(), 3);
  EXPECT_THAT(sampling.stop_token_ids(), ElementsAre(4));
  EXPECT_TRUE(sampling.ignore_eos());
  EXPECT_EQ(sampling.logprobs(), 3);
  EXPECT_EQ(sampling.prompt_logprobs(), 3);  // of the echo
  EXPECT_EQ(call->seed, ~uint64_t{0});
  EXPECT_EQ(call->n, 2);
  EXPECT_EQ(call->max_tokens, 10);
  EXPECT_THAT(call->stop, ElementsAre("a", "b"));
  EXPECT_EQ(call->cache_salt, "s");
  EXPECT_TRUE(call->stream && call->include_usage &&
              call->continuous_usage_stats && call->echo &&
              call->return_token_ids && call->return_tokens_as_token_ids &&
              call->include_stop_str_in_output);
  EXPECT_FALSE(call->skip_special_tokens || call->add_special_tokens);
}

TEST(OpenAiRequestTest, BuildsTheContextOfTheTemplate) {
  const auto call = ParseChat(
      R"({"model":"m","messages":[{"role":"developer","content":"be kind"},)"
      R"({"role":"user","content":[{"type":"text","text":"a"},)"
      R"({"type":"text","text":"b"}]},{"role":"assistant","content":null,)"
      R"("tool_calls":[{"function":{"name":"f","arguments":"{\"x\":1}"}}]}],)"
      R"("tools":[{"type":"function"}],"chat_template_kwargs":{"think":false},)"
      R"("add_generation_prompt":false,"logprobs":true})",
      kLimits, Defaults());
  ASSERT_TRUE(call.ok()) << call.status();
  const nlohmann::ordered_json& context = *call->chat.context;
  EXPECT_EQ(context["messages"][0]["role"], "system");
  EXPECT_EQ(context["messages"][1]["content"][1]["text"], "b");
  EXPECT_EQ(
      context["messages"][2]["tool_calls"][0]["function"]["arguments"]["x"], 1);
  EXPECT_EQ(context["tools"].size(), 1);
  EXPECT_EQ(context["think"], false);
  EXPECT_EQ(context["add_generation_prompt"], false);
  EXPECT_EQ(call->logprobs, 0);
  EXPECT_FALSE(call->add_special_tokens);
  EXPECT_EQ((*JoinTextParts(context))["messages"][1]["content"], "a\nb");
}

// As in the history that clients send back after a tool call.
TEST(OpenAiRequestTest, TakesMessagesOfNothingButAToolCall) {
  for (const char* arguments : {R"("")", "null", R"("{}")"}) {
    const auto call = ParseChat(
        fmt::format(
            R"({{"model":"m","messages":[{{"role":"assistant","content":null,)"
            R"("tool_calls":[{{"function":{{"name":"f","arguments":{}}}}}]}},)"
            R"({{"role":"assistant"}},{{"role":"user","content":[]}},)"
            R"({{"role":"user","content":[{{"type":"text","text":""}},)"
            R"({{"type":"text","text":"b"}}]}}]}})",
            arguments),
        kLimits, Defaults());
    ASSERT_TRUE(call.ok()) << arguments << ": " << call.status();
    const nlohmann::ordered_json& context = *call->chat.context;
    EXPECT_EQ(context["messages"][0]["tool_calls"][0]["function"]["arguments"],
              nlohmann::ordered_json::object());
    // A template that adds strings cannot add null.
    const auto joined = JoinTextParts(context);
    for (const size_t i : {0, 1, 2})
      EXPECT_EQ((*joined)["messages"][i]["content"], "") << i;
    EXPECT_EQ((*joined)["messages"][3]["content"], "\nb");
  }
}

TEST(OpenAiRequestTest, LeavesToolsOutWhereNoneMayBeUsed) {
  const auto call =
      Chat(R"("tools":[{"type":"function"}],"tool_choice":"none")");
  ASSERT_TRUE(call.ok());
  EXPECT_FALSE(call->chat.context->contains("tools"));
}

TEST(OpenAiRequestTest, ZeroTokensMayBeAskedForWithEcho) {
  EXPECT_TRUE(Completion(R"("max_tokens":0,"echo":true)").ok());
}

TEST(OpenAiRequestTest, ParsesTokenize) {
  const auto text = ParseTokenize(
      R"({"prompt":"a","add_special_tokens":false,"return_token_strs":true})");
  ASSERT_TRUE(text.ok());
  EXPECT_FALSE(text->is_chat || text->add_special_tokens);
  EXPECT_TRUE(text->return_token_strs);
  const auto chat =
      ParseTokenize(R"({"messages":[{"role":"user","content":"a"}]})");
  ASSERT_TRUE(chat.ok());
  EXPECT_TRUE(chat->is_chat);
  EXPECT_FALSE(chat->add_special_tokens);
  EXPECT_FALSE(ParseTokenize("{}").ok());
  EXPECT_FALSE(ParseTokenize(R"({"prompt":[1]})").ok());
  EXPECT_FALSE(
      ParseTokenize(
          R"({"prompt":"a","messages":[{"role":"user","content":"a"}]})")
          .ok());
}

TEST(OpenAiRequestTest, ParsesDetokenize) {
  const auto call = ParseDetokenize(R"({"model":"m","tokens":[1,2]})", 100);
  ASSERT_TRUE(call.ok());
  EXPECT_THAT(call->tokens, ElementsAre(1, 2));
  EXPECT_TRUE(ParseDetokenize(R"({"tokens":[]})", 100).ok());
  EXPECT_FALSE(ParseDetokenize("{}", 100).ok());
  EXPECT_FALSE(ParseDetokenize(R"({"tokens":[100]})", 100).ok());
  EXPECT_FALSE(ParseDetokenize(R"({"tokens":"a"})", 100).ok());
}

TEST(ApiErrorTest, HasTheShapeOfOpenAi) {
  const Status status =
      WithApiDetails(InvalidArgument("say \"why\""), "prompt", "bad");
  EXPECT_EQ(
      nlohmann::json::parse(ToApiError(status).Json()),
      nlohmann::json::parse(
          R"({"error":{"message":"say \"why\"","type":"invalid_request_error",)"
          R"("param":"prompt","code":"bad"}})"));
  EXPECT_EQ(ToApiError(Unavailable("x")).status, 503);
  EXPECT_EQ(ToApiError(ResourceExhausted("x")).status, 429);
  EXPECT_EQ(ToApiError(DeadlineExceeded("x")).status, 504);
  EXPECT_EQ(ToApiError(DataLoss("x")).status, 500);
}

}  // namespace
}  // namespace tidepool::conductor
