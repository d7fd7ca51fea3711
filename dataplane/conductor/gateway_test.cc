#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "dataplane/conductor/gateway_test_util.h"

namespace tidepool::conductor {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(GatewayTest, CompletesAPrompt) {
  Start();
  Send("POST", "/v1/completions", kHello, "X-Request-Id: my-id\r\n");
  const FakeBackend::Submitted submitted = backend_.Take();
  EXPECT_EQ(submitted.request.prompt, Tokens("Once upon a time"));
  EXPECT_EQ(submitted.request.sampling.max_tokens(), 8);
  EXPECT_FLOAT_EQ(submitted.request.sampling.temperature(), 0.7f);
  EXPECT_THAT(submitted.request.id, StartsWith("my-id."));
  Generate(submitted, " there was a cat");

  const Answer answer = Read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, HasSubstr("X-Request-Id: my-id\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("X-Tidepool-Prefill: prefill-0\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("X-Tidepool-Decode: decode-0\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("X-Tidepool-Transport: shm\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("Server-Timing: ttft;dur="));
  const json body = answer.Json();
  EXPECT_EQ(body["id"], "cmpl-my-id");
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "demo");
  EXPECT_EQ(body["choices"][0]["text"], " there was a cat");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(body["choices"][0].contains("token_ids"));
  const size_t prompt = Tokens("Once upon a time").size();
  const size_t output = Tokens(" there was a cat").size();
  EXPECT_EQ(body["usage"]["prompt_tokens"], prompt);
  EXPECT_EQ(body["usage"]["completion_tokens"], output);
  EXPECT_EQ(body["usage"]["total_tokens"], prompt + output);
}

TEST_F(GatewayTest, StreamsACompletion) {
  Start();
  Send(
      "POST", "/v1/completions",
      R"({"model":"demo","prompt":[5,6],"stream":true,"return_token_ids":true,)"
      R"("stream_options":{"include_usage":true}})");
  const FakeBackend::Submitted submitted = backend_.Take();
  const std::vector<int32_t> tokens = Tokens(" a cat");
  wire::RequestOutput first = Output({tokens[0]});
  first.set_cached_tokens(1);
  submitted.listener->OnOutput(first, nullptr);
  EXPECT_THAT(client_->ReadUntil("\r\n\r\n"),
              HasSubstr("Content-Type: text/event-stream"));
  const json event = json::parse(NextEvent());
  EXPECT_EQ(event["choices"][0]["token_ids"], json({tokens[0]}));
  EXPECT_EQ(event["choices"][0]["prompt_token_ids"], json({5, 6}));
  EXPECT_TRUE(event["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(event["usage"].is_null());
  submitted.listener->OnOutput(
      Output({tokens.begin() + 1, tokens.end()}, wire::FINISH_REASON_LENGTH),
      nullptr);
  submitted.listener->OnEnd(OkStatus(), Record());
  const json last = json::parse(NextEvent());
  EXPECT_EQ(event["choices"][0]["text"].get<std::string>() +
                last["choices"][0]["text"].get<std::string>(),
            " a cat");
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(last["choices"][0].contains("prompt_token_ids"));
  const json usage = json::parse(NextEvent());
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
  EXPECT_EQ(NextEvent(), "[DONE]");
  // Known only now.
  EXPECT_THAT(client_->ReadUntil("\r\n\r\n"),
              HasSubstr("0\r\nX-Tidepool-Transport: shm\r\n\r\n"));
}

TEST_F(GatewayTest, StreamsAChat) {
  Start();
  Send("POST", "/v1/chat/completions",
       R"({"model":"org/alias","stream":true,)"
       R"("messages":[{"role":"user","content":"Hi"}]})");
  const FakeBackend::Submitted submitted = backend_.Take();
  EXPECT_EQ(submitted.request.prompt,
            Tokens("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
  Generate(submitted, "Hello");
  const json role = json::parse(NextEvent());
  EXPECT_EQ(role["object"], "chat.completion.chunk");
  EXPECT_EQ(role["model"], "org/alias");
  EXPECT_EQ(role["choices"][0]["delta"]["role"], "assistant");
  const json text = json::parse(NextEvent());
  EXPECT_EQ(text["choices"][0]["delta"]["content"], "Hello");
  EXPECT_EQ(text["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(NextEvent(), "[DONE]");
}

TEST_F(GatewayTest, AnswersAChatWithLogprobs) {
  Start();
  Send("POST", "/v1/chat/completions",
       R"({"model":"demo","logprobs":true,"top_logprobs":2,)"
       R"("messages":[{"role":"user","content":"Hi"}]})");
  const FakeBackend::Submitted submitted = backend_.Take();
  EXPECT_EQ(submitted.request.sampling.logprobs(), 2);
  wire::RequestOutput output =
      Output({Tokens("Hello")[0]}, wire::FINISH_REASON_LENGTH);
  auto* position = output.add_logprobs();
  const auto add = [&](int32_t token, float logprob, int32_t rank) {
    auto* entry = position->add_tokens();
    entry->set_token(token);
    entry->set_logprob(logprob);
    entry->set_rank(rank);
  };
  add(output.tokens(0), -std::numeric_limits<float>::infinity(), 9);
  add(7, -0.5f, 1);
  add(8, -1.5f, 2);
  submitted.listener->OnOutput(output, nullptr);
  submitted.listener->OnEnd(OkStatus(), {});
  const json choice = Read().Json()["choices"][0];
  const json logprobs = choice["logprobs"]["content"][0];
  EXPECT_EQ(logprobs["logprob"], -9999.0);
  EXPECT_EQ(logprobs["top_logprobs"].size(), 2u);
  EXPECT_EQ(logprobs["top_logprobs"][0]["logprob"], -0.5);
  EXPECT_FALSE(logprobs["bytes"].empty());
  EXPECT_EQ(choice["message"]["role"], "assistant");
}

TEST_F(GatewayTest, EchoesThePromptWithItsLogprobs) {
  Start();
  Send("POST", "/v1/completions",
       R"({"model":"demo","prompt":"Once upon","max_tokens":0,"echo":true,)"
       R"("logprobs":1})");
  const FakeBackend::Submitted submitted = backend_.Take();
  EXPECT_EQ(submitted.request.sampling.max_tokens(), 1);
  EXPECT_EQ(submitted.request.sampling.prompt_logprobs(), 1);
  const size_t prompt = submitted.request.prompt.size();
  wire::RequestOutput output = Output({9}, wire::FINISH_REASON_LENGTH);
  for (size_t i = 1; i < prompt; ++i) {
    auto* entry = output.add_prompt_logprobs()->add_tokens();
    entry->set_token(submitted.request.prompt[i]);
    entry->set_logprob(-1);
    entry->set_rank(1);
  }
  submitted.listener->OnOutput(output, nullptr);
  submitted.listener->OnEnd(OkStatus(), {});
  const json body = Read().Json();
  const json choice = body["choices"][0];
  EXPECT_EQ(choice["text"], "Once upon");
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), prompt);
  EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_EQ(choice["logprobs"]["token_logprobs"][1], -1.0);
  EXPECT_EQ(choice["logprobs"]["text_offset"][0], 0);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST_F(GatewayTest, TellsThePromptOnceEvenIfNoTokenCameWithIt) {
  Start();
  Send("POST", "/v1/completions",
       R"({"model":"demo","prompt":"Once","echo":true,"stream":true})");
  const FakeBackend::Submitted submitted = backend_.Take();
  submitted.listener->OnOutput(Output({}), nullptr);
  Generate(submitted, " a cat");
  std::string text;
  for (std::string event = NextEvent(); event != "[DONE]" && !event.empty();
       event = NextEvent())
    text += json::parse(event)["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, "Once a cat");
}

TEST_F(GatewayTest, GivesEachChoiceItsOwnSeedAndEachPromptTheSame) {
  Start();
  Send("POST", "/v1/completions",
       R"({"model":"demo","prompt":["a","b"],"n":2,"seed":42,"max_tokens":4})");
  std::map<std::string, FakeBackend::Submitted> by_index;
  for (int i = 0; i < 4; ++i) {
    FakeBackend::Submitted submitted = backend_.Take();
    const std::string id = submitted.request.id;
    by_index[id.substr(id.rfind('.') + 1)] = std::move(submitted);
  }
  const auto seed = [&](const char* index) {
    return by_index.at(index).request.sampling.seed();
  };
  EXPECT_EQ(seed("0"), 42u);
  EXPECT_EQ(seed("2"), 42u);
  EXPECT_EQ(seed("1"), seed("3"));
  EXPECT_NE(seed("1"), 42u);
  for (const auto& [index, submitted] : by_index)
    Generate(submitted, " choice " + index);
  const json body = Read().Json();
  ASSERT_EQ(body["choices"].size(), 4u);
  EXPECT_EQ(body["choices"][3]["index"], 3);
  EXPECT_EQ(body["choices"][3]["text"], " choice 3");
  // A prompt counts once.
  EXPECT_EQ(body["usage"]["prompt_tokens"],
            Tokens("a").size() + Tokens("b").size());
}

TEST_F(GatewayTest, CancelsAtAStopString) {
  Start();
  Send("POST", "/v1/completions",
       R"({"model":"demo","prompt":"x","max_tokens":50,"stop":"cat"})");
  const FakeBackend::Submitted submitted = backend_.Take();
  submitted.listener->OnOutput(Output(Tokens(" there was a cat and")), nullptr);
  const auto [id, reason] = backend_.TakeCancelled();
  EXPECT_EQ(id, submitted.request.id);
  submitted.listener->OnEnd(StatusOf(EndReason::kCancelled, ""), Record());
  const json choice = Read().Json()["choices"][0];
  EXPECT_EQ(choice["text"], " there was a ");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "cat");
}

TEST_F(GatewayTest, CancelsForAClientThatLeaves) {
  Start();
  Send("POST", "/v1/completions", kHello);
  const FakeBackend::Submitted submitted = backend_.Take();
  client_->Close();
  EXPECT_EQ(backend_.TakeCancelled().first, submitted.request.id);
  submitted.listener->OnEnd(StatusOf(EndReason::kCancelled, ""), {});
}

TEST_F(GatewayTest, FailsBeforeTheFirstTokenWithAStatus) {
  Start();
  const std::pair<EndReason, int> cases[] = {
      {EndReason::kInvalid, 400},       {EndReason::kNoRoom, 429},
      {EndReason::kNoReadyWorker, 503}, {EndReason::kAttemptsSpent, 503},
      {EndReason::kExpired, 504},       {EndReason::kShutdown, 503}};
  for (const auto& [reason, status] : cases) {
    Send("POST", "/v1/completions",
         R"({"model":"demo","prompt":"x","stream":true})");
    backend_.Take().listener->OnEnd(StatusOf(reason, "because"), {});
    const Answer answer = Read();
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(ErrorOf(answer)["message"], "because");
    EXPECT_EQ(answer.head.find("Retry-After:") != answer.head.npos,
              status == 429 || status == 503);
  }
}

TEST_F(GatewayTest, FailsMidStreamWithOneErrorEvent) {
  Start();
  Send("POST", "/v1/completions",
       R"({"model":"demo","prompt":"x","stream":true,"n":2})");
  const FakeBackend::Submitted first = backend_.Take();
  const FakeBackend::Submitted second = backend_.Take();
  first.listener->OnOutput(Output(Tokens(" a")), nullptr);
  EXPECT_THAT(NextEvent(), HasSubstr("\"text\":\" a\""));
  first.listener->OnEnd(StatusOf(EndReason::kAttemptsSpent, "all died"), {});
  const json event = json::parse(NextEvent());
  EXPECT_EQ(event["error"]["message"], "all died");
  EXPECT_EQ(event["error"]["code"], "attempts_spent");
  EXPECT_EQ(backend_.TakeCancelled().first, second.request.id);
  second.listener->OnEnd(StatusOf(EndReason::kCancelled, ""), {});
  // The stream ends there, the connection lives.
  EXPECT_THAT(client_->ReadUntil("0\r\n\r\n"), Not(HasSubstr("[DONE]")));
  EXPECT_EQ(Ask("GET", "/health").status, 200);
}

TEST_F(GatewayTest, RefusesWhatTheModelCannotServe) {
  Start();
  const auto error = [&](std::string_view body) {
    const Answer answer = Ask("POST", "/v1/completions", body);
    json value = ErrorOf(answer);
    value["status"] = answer.status;
    return value;
  };
  const json unknown = error(R"({"model":"gpt-4","prompt":"x"})");
  EXPECT_EQ(unknown["status"], 404);
  EXPECT_EQ(unknown["code"], "model_not_found");
  std::string words;
  for (int i = 0; i < 3000; ++i) words += " word";
  const json long_prompt =
      error(R"({"model":"demo","prompt":")" + words + "\"}");
  EXPECT_EQ(long_prompt["status"], 400);
  EXPECT_EQ(long_prompt["code"], "context_length_exceeded");
  const json long_output =
      error(R"({"model":"demo","prompt":"x","max_tokens":5000})");
  EXPECT_EQ(long_output["code"], "context_length_exceeded");
  EXPECT_EQ(long_output["param"], "max_tokens");
  EXPECT_EQ(error(R"({"model":"demo","prompt":[4096]})")["param"], "prompt");
  EXPECT_EQ(error(R"({"model":"demo","prompt":""})")["param"], "prompt");
  EXPECT_EQ(error("{")["code"], "invalid_json");
  const Answer role =
      Ask("POST", "/v1/chat/completions",
          R"({"model":"demo","messages":[{"role":"judge","content":"x"}]})");
  EXPECT_EQ(role.status, 400);
  EXPECT_THAT(role.body, HasSubstr("unknown role judge"));
}

TEST_F(GatewayTest, ServesIdsWithoutATokenizer) {
  Start({}, /*with_tokenizer=*/false);
  Send(
      "POST", "/v1/completions",
      R"({"model":"ids","prompt":[1,2],"return_token_ids":true,"logprobs":0})");
  const FakeBackend::Submitted submitted = backend_.Take();
  wire::RequestOutput output = Output({3, 4}, wire::FINISH_REASON_LENGTH);
  for (const int32_t token : {3, 4}) {
    auto* entry = output.add_logprobs()->add_tokens();
    entry->set_token(token);
    entry->set_rank(1);
  }
  submitted.listener->OnOutput(output, nullptr);
  submitted.listener->OnEnd(OkStatus(), {});
  const json choice = Read().Json()["choices"][0];
  EXPECT_EQ(choice["text"], "");
  EXPECT_EQ(choice["token_ids"], json({3, 4}));
  EXPECT_EQ(choice["logprobs"]["tokens"], json({"token_id:3", "token_id:4"}));

  for (const char* body : {R"({"model":"ids","prompt":"x"})",
                           R"({"model":"ids","prompt":[1],"stop":"x"})",
                           R"({"model":"ids","prompt":[1],"echo":true})"}) {
    const Answer answer = Ask("POST", "/v1/completions", body);
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.body, HasSubstr("no tokenizer"));
  }
  EXPECT_EQ(Ask("POST", "/detokenize", R"({"tokens":[1]})").status, 400);
}

}  // namespace
}  // namespace tidepool::conductor
