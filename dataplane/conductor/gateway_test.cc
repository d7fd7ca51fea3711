#include "dataplane/conductor/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/bounded_queue.h"
#include "dataplane/base/mutex.h"
#include "dataplane/conductor/api_error.h"
#include "dataplane/conductor/http_test_client.h"

namespace tidepool::conductor {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A fleet whose tokens the test brings.
class FakeBackend : public Backend {
 public:
  struct Submitted {
    ClientRequest request;
    std::shared_ptr<GenerationListener> listener;
  };

  void Submit(ClientRequest request,
              std::shared_ptr<GenerationListener> listener) override {
    EXPECT_TRUE(submitted_.TryPush({std::move(request), std::move(listener)}));
  }
  void Cancel(std::string request_id, std::string reason) override {
    EXPECT_TRUE(cancelled_.TryPush({std::move(request_id), reason}));
  }
  std::shared_ptr<const FleetSnapshot> Snapshot() const override {
    const MutexLock lock(&mutex_);
    return std::make_shared<FleetSnapshot>(snapshot_);
  }

  void SetReady(bool ready) {
    const MutexLock lock(&mutex_);
    snapshot_.ready = ready;
  }
  void AddLoadingWorker(float progress) {
    const MutexLock lock(&mutex_);
    snapshot_.workers.push_back({.loading = true});
    snapshot_.workers.back().description.set_load_progress(progress);
  }

  void AddWorker(WorkerStatus worker) {
    const MutexLock lock(&mutex_);
    snapshot_.workers.push_back(std::move(worker));
  }

  Submitted Take() {
    std::optional<Submitted> next = submitted_.Pop(RawClient::kPatience);
    EXPECT_TRUE(next.has_value());
    return next ? std::move(*next) : Submitted{};
  }
  std::pair<std::string, std::string> TakeCancelled() {
    auto next = cancelled_.Pop(RawClient::kPatience);
    EXPECT_TRUE(next.has_value());
    return next.value_or(std::pair<std::string, std::string>());
  }

 private:
  BoundedQueue<Submitted> submitted_{64};
  BoundedQueue<std::pair<std::string, std::string>> cancelled_{64};
  mutable Mutex mutex_;
  FleetSnapshot snapshot_ ABSL_GUARDED_BY(mutex_);
};

struct Answer {
  int status = 0;
  std::string head, body;
  json Json() const { return json::parse(body); }
};

class GatewayTest : public testing::Test {
 protected:
  static std::string DemoFolder() {
    return std::string(TIDEPOOL_SOURCE_DIR) + "/models/demo";
  }

  void Start(GatewayOptions options = {}, bool with_tokenizer = true) {
    if (with_tokenizer) {
      auto loaded = ServingModel::Load(DemoFolder(), {"demo", "org/alias"}, 0);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      model_.emplace(*std::move(loaded));
    } else {
      ServingModel::Parts parts;
      parts.names = {"ids"};
      parts.vocab_size = 1000;
      parts.max_model_len = 64;
      parts.sampling_defaults.set_temperature(1);
      model_.emplace(std::move(parts));
    }
    gateway_.emplace(*model_, backend_, Clock::Monotonic(), std::move(options));
    auto server = HttpServer::Listen(
        {},
        [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
          gateway_->Handle(std::move(request), std::move(exchange));
        },
        Gateway::ErrorPage);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Start();
    client_.emplace(server_->port());
  }
  void TearDown() override { server_.reset(); }

  void Send(std::string_view method, std::string_view path,
            std::string_view body = "", std::string_view headers = "") {
    ASSERT_TRUE(client_->Send(
        fmt::format("{} {} HTTP/1.1\r\nHost: t\r\n{}Content-Length: {}\r\n\r\n"
                    "{}",
                    method, path, headers, body.size(), body)));
  }
  Answer Read() {
    const std::string text = client_->ReadResponse();
    const size_t end = text.find("\r\n\r\n");
    if (end == text.npos) return {};
    return {.status = std::atoi(text.c_str() + 9),
            .head = text.substr(0, end + 4),
            .body = text.substr(end + 4)};
  }
  Answer Ask(std::string_view method, std::string_view path,
             std::string_view body = "", std::string_view headers = "") {
    Send(method, path, body, headers);
    return Read();
  }
  json ErrorOf(const Answer& answer) { return answer.Json()["error"]; }

  std::vector<int32_t> Tokens(std::string_view text) {
    return *model_->tokenizer()->Encode(text, {.add_special_tokens = false});
  }

  // Tokens as a worker sends them.
  static wire::RequestOutput Output(
      const std::vector<int32_t>& tokens,
      wire::FinishReason finish = wire::FINISH_REASON_UNSPECIFIED) {
    wire::RequestOutput output;
    output.mutable_tokens()->Assign(tokens.begin(), tokens.end());
    output.set_finish_reason(finish);
    return output;
  }
  static RequestRecord Record() {
    RequestRecord record;
    record.attempts.push_back({.attempt = 1,
                               .prefill_worker = "prefill-0",
                               .decode_worker = "decode-0",
                               .transport = "shm"});
    return record;
  }
  void Generate(const FakeBackend::Submitted& submitted,
                std::string_view text) {
    const AttemptRecord attempt = Record().attempts[0];
    submitted.listener->OnOutput(
        Output(Tokens(text), wire::FINISH_REASON_LENGTH), &attempt);
    submitted.listener->OnEnd(OkStatus(), Record());
  }
  // The `data:` of the next event.
  std::string NextEvent() {
    const std::string text = client_->ReadUntil("\n\n");
    const size_t at = text.find("data: ");
    return at == text.npos ? "" : text.substr(at + 6, text.size() - at - 8);
  }

  FakeBackend backend_;
  std::optional<ServingModel> model_;
  std::optional<Gateway> gateway_;
  std::unique_ptr<HttpServer> server_;
  std::optional<RawClient> client_;
};

constexpr std::string_view kHello =
    R"({"model":"demo","prompt":"Once upon a time","max_tokens":8})";

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
