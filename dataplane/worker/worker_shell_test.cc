// Real worker processes on loopback, driven by a conductor by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "dataplane/worker/worker_shell_engine.h"
#include "dataplane/worker/worker_shell_test_util.h"

namespace tidepool::worker {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::string DemoModel() { return TIDEPOOL_SOURCE_DIR "/models/demo"; }

std::vector<std::string> Arguments(const std::string& role,
                                   std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"--model",
                                        DemoModel(),
                                        "--role",
                                        role,
                                        "--threads",
                                        "1",
                                        "--max-num-seqs",
                                        "16",
                                        "--page-size",
                                        "16",
                                        "--max-model-len",
                                        "1024",
                                        "--kv-cache-memory",
                                        "64Mi",
                                        "--log-level",
                                        "warning",
                                        "--max-num-batched-tokens",
                                        "48"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

v1::RequestHeader Header(const std::string& id) {
  v1::RequestHeader header;
  header.set_request_id(id);
  header.set_attempt(1);
  header.set_conductor_id("test");
  header.set_conductor_incarnation(1);
  header.set_timeout_ms(60000);
  return header;
}

v1::GenerationRequest Request(int prompt_tokens, int max_tokens, int seed) {
  v1::GenerationRequest request;
  for (int i = 0; i < prompt_tokens; ++i)
    request.add_tokens(1 + (i * 37 + seed * 101) % 4000);
  request.set_prompt_tokens(static_cast<uint32_t>(prompt_tokens));
  auto& sampling = *request.mutable_sampling();
  sampling.set_temperature(seed % 2 == 0 ? 0.0f : 0.8f);
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  sampling.set_seed(static_cast<uint64_t>(seed));
  sampling.set_logprobs(-1);
  sampling.set_prompt_logprobs(-1);
  sampling.set_max_tokens(max_tokens);
  sampling.set_ignore_eos(true);
  return request;
}

v1::DecodePeer PeerOf(const WorkerClient& decode) {
  v1::DecodePeer peer;
  peer.set_control_address(decode.address());
  peer.set_incarnation(decode.description().incarnation());
  peer.set_transfer_address(decode.description().transfer_address());
  return peer;
}

// The engine alone, without any of the shell.
class ReferenceEngine {
 public:
  ReferenceEngine() {
    WorkerOptions options;
    options.model = DemoModel();
    options.threads = 1;
    options.page_size = 16;
    options.max_num_seqs = 16;
    options.max_model_len = 1024;
    options.kv_cache_memory = 64 << 20;
    options.max_num_batched_tokens = 512;
    auto loaded = LoadEngine(options, {}, [](float) {});
    CHECK(loaded.ok());
    loaded_.emplace(*std::move(loaded));
  }

  std::vector<int32_t> Generate(const v1::GenerationRequest& request) {
    engine::EngineRequest engine_request;
    engine_request.id = next_id_++;
    engine_request.tokens.assign(request.tokens().begin(),
                                 request.tokens().end());
    engine_request.prompt_tokens =
        static_cast<int32_t>(request.prompt_tokens());
    engine_request.sampling.temperature = request.sampling().temperature();
    engine_request.sampling.seed = request.sampling().seed();
    engine_request.sampling.max_tokens = request.sampling().max_tokens();
    engine_request.sampling.ignore_eos = true;
    CHECK(loaded_->core->Add(std::move(engine_request)).ok());
    std::vector<int32_t> tokens;
    engine::StepResult result;
    while (const engine::StepPlan* plan = loaded_->core->Plan()) {
      CHECK(loaded_->runner->Execute(*plan, nullptr, result).ok());
      for (const engine::EngineOutput& output : loaded_->core->Complete(result))
        tokens.push_back(*output.token);
    }
    return tokens;
  }

 private:
  std::optional<LoadedEngine> loaded_;
  engine::SequenceId next_id_ = 1;
};

// All pages are free or only cached, and nothing is under way.
void ExpectNothingHeld(const WorkerProcess& worker) {
  const TimePoint give_up = Clock::Monotonic().Now() + 45s;
  const auto held = [&] {
    double sum = 0;
    for (const char* state : {"running", "reserved", "held"})
      sum += worker.Metric(
          fmt::format("tidepool_worker_pages{{state=\"{}\"}}", state));
    return sum + worker.Metric("tidepool_worker_requests") +
           worker.Metric("tidepool_worker_transfer_granted_requests") +
           worker.Metric("tidepool_worker_transfer_slices_waiting");
  };
  while (held() != 0 && Clock::Monotonic().Now() < give_up)
    std::this_thread::sleep_for(50ms);
  EXPECT_EQ(held(), 0);
}

class HandoverTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Transports, HandoverTest,
                         testing::Values("tcp", "shm"));

TEST_P(HandoverTest, TokensAreThoseOfOneProcess) {
  const WorkerProcess prefill(
      Arguments("prefill", {"--transport", GetParam()}));
  const WorkerProcess decode(Arguments("decode"));
  WorkerClient to_decode(decode.control_address(), "test");
  WorkerClient to_prefill(prefill.control_address(), "test");
  const v1::DecodePeer peer = PeerOf(to_decode);
  ReferenceEngine reference;
  // Shorter than a page, a whole page, many chunks; together in one batch.
  const std::vector<int> lengths = {1, 15, 16, 17, 100, 300};
  for (size_t i = 0; i < lengths.size(); ++i)
    to_prefill.Submit(Header(fmt::format("r{}", i)),
                      Request(lengths[i], 24, static_cast<int>(i)), &peer);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const std::string id = fmt::format("r{}", i);
    const auto sent = to_prefill.Await(id);
    EXPECT_TRUE(sent.handed_over) << sent.failure.message();
    EXPECT_EQ(sent.transport, GetParam());
    const auto ending = to_decode.Await(id);
    EXPECT_EQ(ending.tokens,
              reference.Generate(Request(lengths[i], 24, static_cast<int>(i))))
        << lengths[i];
    EXPECT_EQ(ending.finish_reason, v1::FINISH_REASON_LENGTH);
  }
  ExpectNothingHeld(prefill);
  ExpectNothingHeld(decode);
  const double bytes = decode.Metric(fmt::format(
      "tidepool_worker_transfer_bytes_total{{direction=\"received\","
      "transport=\"{}\"}}",
      GetParam()));
  EXPECT_GT(bytes, 0);
}

TEST_P(HandoverTest, APrefillWorkerThatDiesLeavesNothingBehind) {
  WorkerProcess prefill(Arguments("prefill", {"--transport", GetParam()}));
  const WorkerProcess decode(Arguments("decode"));
  WorkerClient to_decode(decode.control_address(), "test");
  const v1::DecodePeer peer = PeerOf(to_decode);
  {
    WorkerClient to_prefill(prefill.control_address(), "test");
    for (int i = 0; i < 8; ++i)
      to_prefill.Submit(Header(fmt::format("r{}", i)), Request(900, 4, i),
                        &peer);
    to_prefill.Await("r0");  // some are in every stage
    prefill.Signal(SIGKILL);
    prefill.Wait();
  }
  for (int i = 0; i < 8; ++i) to_decode.Cancel(Header(fmt::format("r{}", i)));
  ExpectNothingHeld(decode);
  // And the worker still serves.
  to_decode.Submit(Header("after"), Request(20, 4, 1), nullptr);
  EXPECT_EQ(to_decode.Await("after").tokens.size(), 4u);
}

TEST_P(HandoverTest, ADecodeWorkerThatDiesFailsItsHandoversAlone) {
  const WorkerProcess prefill(
      Arguments("prefill", {"--transport", GetParam()}));
  WorkerProcess decode(Arguments("decode"));
  WorkerClient to_prefill(prefill.control_address(), "test");
  v1::DecodePeer peer;
  {
    WorkerClient to_decode(decode.control_address(), "test");
    peer = PeerOf(to_decode);
    for (int i = 0; i < 8; ++i)
      to_prefill.Submit(Header(fmt::format("r{}", i)), Request(900, 4, i),
                        &peer);
    to_prefill.Await("r0");
    decode.Signal(SIGKILL);
    decode.Wait();
  }
  for (int i = 0; i < 8; ++i) {
    const auto ending = to_prefill.Await(fmt::format("r{}", i));
    EXPECT_TRUE(ending.handed_over ||
                ending.failure.kind() == v1::RequestFailure::KIND_PEER)
        << ending.failure.message();
  }
  ExpectNothingHeld(prefill);
  // And the worker still serves, in either role.
  EXPECT_EQ(to_prefill.SetRole(v1::ROLE_DECODE, 1, 0).role(), v1::ROLE_DECODE);
  to_prefill.Submit(Header("after"), Request(20, 4, 1), nullptr);
  EXPECT_EQ(to_prefill.Await("after").tokens.size(), 4u);
}

TEST(WorkerProcessTest, AConductorThatLeavesCancelsItsRequests) {
  const WorkerProcess decode(Arguments("decode"));
  {
    WorkerClient client(decode.control_address(), "test");
    client.Submit(Header("r"), Request(20, 900, 1), nullptr);
    client.Await("r", 3);
  }
  ExpectNothingHeld(decode);
  EXPECT_EQ(decode.Metric("tidepool_worker_conductor_connections"), 0);
}

TEST(WorkerProcessTest, SigtermLetsRequestsEndAndRefusesNewOnes) {
  WorkerProcess decode(Arguments("decode"));
  WorkerClient client(decode.control_address(), "test");
  client.Submit(Header("old"), Request(20, 200, 2), nullptr);
  client.Await("old", 1);
  decode.Signal(SIGTERM);
  // Until the worker has noticed, requests are still taken.
  v1::RequestFailure::Kind kind = v1::RequestFailure::KIND_UNSPECIFIED;
  for (int i = 0; kind == v1::RequestFailure::KIND_UNSPECIFIED; ++i) {
    const std::string id = fmt::format("new{}", i);
    client.Submit(Header(id), Request(5, 1, 1), nullptr);
    kind = client.Await(id).failure.kind();
  }
  EXPECT_EQ(kind, v1::RequestFailure::KIND_DRAINING);
  EXPECT_EQ(client.Await("old").tokens.size(), 200u);
  EXPECT_EQ(client.AwaitEnd().error_code(), grpc::StatusCode::UNAVAILABLE);
  const int status = decode.Wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(WorkerProcessTest, WhatIsNotDoneAtTheDrainTimeoutIsHandedBack) {
  WorkerProcess decode(Arguments("decode", {"--drain-timeout", "0"}));
  WorkerClient client(decode.control_address(), "test");
  client.Submit(Header("r"), Request(20, 900, 2), nullptr);
  client.Await("r", 1);
  decode.Signal(SIGTERM);
  EXPECT_EQ(client.AwaitEnd().error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto ending = client.Await("r");
  EXPECT_EQ(ending.failure.kind(), v1::RequestFailure::KIND_DRAINING);
  EXPECT_LT(ending.tokens.size(), 900u);
  const int status = decode.Wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(WorkerProcessTest, ARoleChangesWithCacheAndReadinessKept) {
  const WorkerProcess worker(Arguments("decode"));
  const WorkerProcess decode(Arguments("decode"));
  WorkerClient client(worker.control_address(), "test");
  WorkerClient to_decode(decode.control_address(), "test");
  client.Submit(Header("long"), Request(300, 700, 2), nullptr);
  client.Await("long", 1);
  const v1::RoleState switching = client.SetRole(v1::ROLE_PREFILL, 1, 0);
  EXPECT_EQ(switching.role(), v1::ROLE_PREFILL);  // nothing was waited for
  client.AwaitRole(v1::ROLE_PREFILL);
  EXPECT_EQ(client.Await("long").failure.kind(),
            v1::RequestFailure::KIND_DRAINING);
  EXPECT_THAT(worker.Get("/ready"), HasSubstr(" 200 "));
  EXPECT_THAT(worker.Get("/ready"), HasSubstr("prefill"));
  EXPECT_THAT(worker.Get("/health"), HasSubstr(" 200 "));
  const v1::DecodePeer peer = PeerOf(to_decode);
  client.Submit(Header("again"), Request(300, 4, 2), &peer);
  EXPECT_TRUE(client.Await("again").handed_over);
  EXPECT_GE(worker.Metric("tidepool_worker_prefix_hit_tokens_total"), 256);
  // Older epochs come too late.
  EXPECT_EQ(client.SetRole(v1::ROLE_DECODE, 0, 0).role(), v1::ROLE_UNSPECIFIED);
}

// The tokenizer is a pipe that nobody writes to: loading never ends.
TEST(WorkerProcessTest, SigtermWhileTheModelLoadsEndsAtOnce) {
  namespace fs = std::filesystem;
  std::string folder = fs::temp_directory_path() / "tidepool-model-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  fs::copy(DemoModel() + "/config.json", folder);
  ASSERT_EQ(mkfifo((folder + "/tokenizer.json").c_str(), 0600), 0);
  WorkerProcess worker({"--model", folder, "--load-format", "dummy"});
  EXPECT_THAT(worker.Get("/ready"), HasSubstr(" 503 "));
  EXPECT_THAT(worker.Get("/ready"), HasSubstr("loading"));
  EXPECT_THAT(worker.Get("/health"), HasSubstr(" 200 "));
  worker.Signal(SIGTERM);
  const int status = worker.Wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  fs::remove_all(folder);
}

TEST(WorkerProcessTest, ASecondSignalEndsAtOnce) {
  WorkerProcess decode(Arguments("decode"));
  WorkerClient client(decode.control_address(), "test");
  client.Submit(Header("r"), Request(20, 900, 2), nullptr);
  client.Await("r", 1);
  decode.Signal(SIGTERM);
  decode.Signal(SIGINT);
  const int status = decode.Wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

TEST(WorkerProcessTest, SaysWhatIsWrongAndExits) {
  const WorkerProcess running(Arguments("decode"));
  const std::string address = running.control_address();
  const std::string port = address.substr(address.rfind(':') + 1);
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {{"--no-such-flag"}, "no-such-flag"},
      {{"--role", "both"}, "role"},
      {{"--threads", "-1"}, "threads"},
      {{"--block-size", "65"}, "--block-size"},
      {{"--page-size", "17"}, "--page-size"},
      {{"--host", "0.0.0.0"}, "--advertise-host"},
      {{"--max-num-seqs", "64", "--max-num-batched-tokens", "32"},
       "--max-num-batched-tokens"},
      {{"--model", "/no/such/model"}, "/no/such/model"},
      {{"--model", DemoModel(), "--max-model-len", "4096"}, "--max-model-len"},
      {{"--model", DemoModel(), "--kv-cache-memory", "1Ki"},
       "--kv-cache-memory"},
      {{"--model", DemoModel(), "--port", port}, "in use"},
  };
  for (const auto& [arguments, message] : cases) {
    int status = 0;
    EXPECT_THAT(RunWorker(arguments, status), HasSubstr(message));
    EXPECT_TRUE(WIFEXITED(status)) << message;
    EXPECT_NE(WEXITSTATUS(status), 0) << message;
  }
}

}  // namespace
}  // namespace tidepool::worker
