// Everything but generation: conversions, keys, states, metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dataplane/conductor/api_error.h"
#include "dataplane/conductor/gateway_test_util.h"

namespace tidepool::conductor {
namespace {

using testing::HasSubstr;

TEST_F(GatewayTest, TokenizesAndBack) {
  Start();
  const json tokens =
      Ask("POST", "/tokenize",
          R"({"model":"demo","prompt":"a cat","return_token_strs":true})")
          .Json();
  EXPECT_EQ(tokens["tokens"].get<std::vector<int32_t>>(), Tokens("a cat"));
  EXPECT_EQ(tokens["count"], Tokens("a cat").size());
  EXPECT_EQ(tokens["max_model_len"], 2048);
  EXPECT_EQ(tokens["token_strs"].size(), Tokens("a cat").size());
  const json text =
      Ask("POST", "/detokenize", json({{"tokens", Tokens("a cat")}}).dump())
          .Json();
  EXPECT_EQ(text["prompt"], "a cat");
  const json chat = Ask("POST", "/tokenize",
                        R"({"messages":[{"role":"user","content":"Hi"}]})")
                        .Json();
  EXPECT_EQ(chat["tokens"].get<std::vector<int32_t>>(),
            Tokens("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
}

TEST_F(GatewayTest, TokenizesWhatIsNoPrompt) {
  Start();
  EXPECT_EQ(Ask("POST", "/tokenize", R"({"prompt":""})").Json()["count"], 0);
  // Longer than the context: clients count tokens to find that out.
  std::string text;
  for (int i = 0; i < 3000; ++i) text += " cat";
  const json prompt{{"model", "demo"}, {"prompt", text}};
  EXPECT_EQ(Ask("POST", "/tokenize", prompt.dump()).Json()["count"],
            Tokens(text).size());
  EXPECT_EQ(ErrorOf(Ask("POST", "/v1/completions", prompt.dump()))["code"],
            "context_length_exceeded");
}

TEST_F(GatewayTest, RefusesTokensThatOnlyTheTokenizerKnows) {
  Start();
  ServingModel::Parts parts;
  parts.names = {"demo"};
  auto tokenizer = model::Tokenizer::Load(DemoFolder() + "/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  parts.tokenizer = *std::move(tokenizer);
  parts.max_model_len = 64;
  parts.vocab_size = Tokens(" cat").front();
  const ServingModel small(std::move(parts));
  const auto ids = small.TokenizePrompt(" cat", false, "prompt");
  EXPECT_EQ(ToApiError(ids.status()).param, "prompt");
  EXPECT_THAT(ids.status().ToString(), HasSubstr("vocabulary"));
}

TEST_F(GatewayTest, ListsItsModels) {
  Start();
  const json list = Ask("GET", "/v1/models").Json();
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "demo");
  EXPECT_EQ(list["data"][1]["id"], "org/alias");
  EXPECT_EQ(list["data"][0]["max_model_len"], 2048);
  EXPECT_EQ(Ask("GET", "/v1/models/org/alias").Json()["id"], "org/alias");
  EXPECT_EQ(Ask("GET", "/v1/models/org%2Falias").Json()["id"], "org/alias");
  const Answer missing = Ask("GET", "/v1/models/other");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(ErrorOf(missing)["code"], "model_not_found");
}

TEST_F(GatewayTest, GuardsTheApiWithKeys) {
  GatewayOptions options;
  options.api_keys = *ApiKeys::Create({"secret", "other"});
  Start(std::move(options));
  const Answer none = Ask("GET", "/v1/models");
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(ErrorOf(none)["code"], "invalid_api_key");
  EXPECT_THAT(none.head, HasSubstr("WWW-Authenticate: Bearer"));
  EXPECT_EQ(
      Ask("GET", "/v1/models", "", "Authorization: Bearer secre\r\n").status,
      401);
  EXPECT_EQ(Ask("POST", "/tokenize", "{}").status, 401);
  EXPECT_EQ(
      Ask("GET", "/v1/models", "", "authorization: Bearer other\r\n").status,
      200);
  for (const char* open : {"/health", "/version", "/metrics"})
    EXPECT_EQ(Ask("GET", open).status, 200) << open;
}

TEST_F(GatewayTest, RefusesUnknownPathsMethodsAndRequestIds) {
  Start();
  EXPECT_EQ(Ask("GET", "/nothing").status, 404);
  EXPECT_EQ(Ask("GET", "/v1/completions").status, 405);
  EXPECT_EQ(Ask("POST", "/v1/models").status, 405);
  const Answer bad = Ask("GET", "/v1/models", "", "X-Request-Id: a b\r\n");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(ErrorOf(bad)["param"], "X-Request-Id");
  const Answer long_id = Ask("GET", "/v1/models", "",
                             "X-Request-Id: " + std::string(129, 'a') + "\r\n");
  EXPECT_EQ(long_id.status, 400);
  // No answer could repeat it in JSON.
  const Answer bytes = Ask("GET", "/v1/models/%FF");
  EXPECT_EQ(bytes.status, 400);
  EXPECT_THAT(ErrorOf(bytes)["message"], HasSubstr("UTF-8"));
}

TEST_F(GatewayTest, IsReadyWithTheFleetUntilItDrains) {
  Start();
  EXPECT_EQ(Ask("GET", "/ready").status, 503);
  EXPECT_EQ(Ask("GET", "/ready").Json()["reason"], "no decode worker is ready");
  backend_.AddLoadingWorker(0.5);
  EXPECT_EQ(Ask("GET", "/ready").Json()["workers"][0]["load_progress"], 0.5);
  backend_.SetReady(true);
  EXPECT_EQ(Ask("GET", "/ready").status, 200);
  gateway_->StartDraining();
  EXPECT_EQ(Ask("GET", "/ready").Json()["reason"], "draining");
  EXPECT_EQ(Ask("GET", "/health").status, 200);
}

TEST_F(GatewayTest, CountsWhatItServes) {
  Start();
  Send("POST", "/v1/completions", kHello);
  Generate(backend_.Take(), " a cat");
  EXPECT_EQ(Read().status, 200);
  const std::string metrics = Ask("GET", "/metrics").body;
  const size_t output = Tokens(" a cat").size();
  for (const std::string& line : {
           std::string(
               "tidepool_gateway_ttft_seconds_count{model_name=\"demo\"} 1"),
           std::string(
               "vllm:time_to_first_token_seconds_count{model_name=\"demo\"} 1"),
           fmt::format("vllm:generation_tokens_total{{model_name=\"demo\"}} {}",
                       output),
           std::string("vllm:num_requests_running{model_name=\"demo\"} 0"),
           std::string("vllm:num_requests_waiting{model_name=\"demo\"} 0"),
       })
    EXPECT_THAT(metrics, HasSubstr(line));
  EXPECT_THAT(metrics, HasSubstr("finished_reason=\"length\""));
}

TEST_F(GatewayTest, ShowsPreemptionsUnderBothNames) {
  Start();
  WorkerStatus worker{.name = "decode-0"};
  worker.description.set_role(wire::ROLE_DECODE);
  worker.load.set_preemptions_total(3);
  backend_.AddWorker(std::move(worker));
  const std::string metrics = Ask("GET", "/metrics").body;
  for (const char* line :
       {"tidepool_fleet_worker_preemptions_total{worker=\"decode-0\",role="
        "\"decode\"} 3",
        "vllm:num_preemptions_total{worker=\"decode-0\",role=\"decode\","
        "model_name=\"demo\"} 3"})
    EXPECT_THAT(metrics, HasSubstr(line));
}

TEST_F(GatewayTest, LeavesTheGaugesLevelAfterEveryKindOfEnd) {
  Start();
  Send("POST", "/v1/completions", kHello);
  const FakeBackend::Submitted left = backend_.Take();
  client_->Close();
  (void)backend_.TakeCancelled();
  left.listener->OnEnd(StatusOf(EndReason::kCancelled, ""), {});
  client_.emplace(server_->port());
  Send("POST", "/v1/completions", kHello);
  backend_.Take().listener->OnEnd(StatusOf(EndReason::kNoRoom, ""), {});
  EXPECT_EQ(Read().status, 429);
  const std::string metrics = Ask("GET", "/metrics").body;
  EXPECT_THAT(
      metrics,
      HasSubstr("tidepool_gateway_choices_waiting{model_name=\"demo\"} 0"));
  EXPECT_THAT(
      metrics,
      HasSubstr("tidepool_gateway_choices_running{model_name=\"demo\"} 0"));
  EXPECT_THAT(metrics,
              HasSubstr("finished_reason=\"abort\",model_name=\"demo\"} 1"));
}

}  // namespace
}  // namespace tidepool::conductor
