// A gateway in front of a fake fleet, asked over a real socket.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataplane/base/bounded_queue.h"
#include "dataplane/base/mutex.h"
#include "dataplane/conductor/gateway.h"
#include "dataplane/conductor/http_test_client.h"

namespace tidepool::conductor {

using nlohmann::json;

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

inline constexpr std::string_view kHello =
    R"({"model":"demo","prompt":"Once upon a time","max_tokens":8})";

}  // namespace tidepool::conductor
