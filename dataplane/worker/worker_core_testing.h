// The fixture of WorkerCore's tests: one core on a real engine core; the test
// plays conductors, other workers, the messenger and the model's runner.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/engine/engine_core.h"
#include "dataplane/worker/worker_core.h"
#include "tests/fakes/fake_model.h"

namespace tidepool::worker {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Failure = wire::RequestFailure;

inline constexpr SessionId kSession = 1;

class WorkerCoreTest : public ::testing::Test {
 protected:
  explicit WorkerCoreTest(WorkerCoreConfig config = {},
                          wire::Role role = wire::ROLE_DECODE) {
    engine_config_ = {.page_tokens = 4,
                      .block_tokens = 4,
                      .num_pages = 32,
                      .max_num_seqs = 4,
                      .max_num_batched_tokens = 8,
                      .max_model_len = 64,
                      .vocab_size = 64,
                      .eos_ids = {0}};
    engine_ = *engine::EngineCore::Create(engine_config_);
    config.slice_bytes = static_cast<uint64_t>(model_.Layout().slice_bytes());
    wire::DescribeResponse& hello = config.description;
    hello.set_incarnation(100);
    hello.set_role(role);
    hello.set_transfer_address("me:2");
    *hello.mutable_identity() = Identity();
    core_ = std::make_unique<WorkerCore>(std::move(config), *engine_);
  }

  wire::ModelIdentity Identity() const {
    wire::ModelIdentity identity;
    identity.set_model_digest("m");
    identity.set_num_layers(static_cast<uint32_t>(model_.num_layers));
    identity.set_page_tokens(4);
    identity.set_block_tokens(4);
    return identity;
  }

  // ---- Effects ----
  void Collect() {
    for (WorkerEffect& effect : core_->TakeEffects()) {
      effects_.push_back(std::move(effect));
    }
  }
  // All effects of one kind so far, taken away.
  template <typename T>
  std::vector<T> Take() {
    Collect();
    std::vector<T> taken;
    std::erase_if(effects_, [&](WorkerEffect& effect) {
      if (!std::holds_alternative<T>(effect)) return false;
      taken.push_back(std::move(std::get<T>(effect)));
      return true;
    });
    return taken;
  }
  std::vector<wire::RequestOutput> TakeOutputs() {
    std::vector<wire::RequestOutput> outputs;
    for (const SendToConductor& send : TakeMessages()) {
      for (const auto& output : send.message.outputs().outputs()) {
        outputs.push_back(output);
      }
      if (send.message.has_failure()) {
        failures_.push_back(send.message.failure());
      }
    }
    return outputs;
  }
  std::vector<SendToConductor> TakeMessages() {
    return Take<SendToConductor>();
  }
  std::optional<Failure> TakeFailure() {
    TakeOutputs();
    if (failures_.empty()) return std::nullopt;
    Failure failure = failures_.front();
    failures_.erase(failures_.begin());
    return failure;
  }
  // The status of the only reply there is.
  Status TakeReplyStatus() {
    const std::vector<ReplyToPeer> replies = Take<ReplyToPeer>();
    EXPECT_EQ(replies.size(), 1u);
    return replies.empty() ? Internal("no reply")
                           : replies[0].response.status();
  }

  // ---- Inputs ----
  void OpenSession(SessionId session = kSession,
                   const std::string& conductor = "c") {
    wire::SessionRequest message;
    message.set_sequence(1);
    message.mutable_hello()->set_conductor_id(conductor);
    message.mutable_hello()->set_incarnation(5);
    next_sequence_ = 2;
    core_->OnSessionMessage(session, message, now_);
  }
  wire::RequestHeader Header(const std::string& id, uint32_t attempt) const {
    wire::RequestHeader header;
    header.set_request_id(id);
    header.set_attempt(attempt);
    header.set_conductor_id("c");
    header.set_conductor_incarnation(5);
    header.set_timeout_ms(20'000);
    return header;
  }
  wire::GenerationRequest Generation(int prompt_tokens, int max_tokens) const {
    wire::GenerationRequest request;
    for (int i = 0; i < prompt_tokens; ++i) request.add_tokens(i % 60 + 1);
    request.set_prompt_tokens(static_cast<uint32_t>(prompt_tokens));
    request.mutable_sampling()->set_max_tokens(max_tokens);
    request.mutable_sampling()->set_top_p(1);
    request.mutable_sampling()->set_repetition_penalty(1);
    request.mutable_sampling()->set_logprobs(-1);
    request.mutable_sampling()->set_prompt_logprobs(-1);
    request.mutable_sampling()->set_ignore_eos(true);
    return request;
  }
  void Submit(const std::string& id, uint32_t attempt, int prompt_tokens,
              int max_tokens, bool prefill = false) {
    wire::SessionRequest message;
    message.set_sequence(next_sequence_++);
    wire::SubmitRequest& submit = *message.mutable_submit();
    *submit.mutable_header() = Header(id, attempt);
    *submit.mutable_request() = Generation(prompt_tokens, max_tokens);
    if (prefill) {
      submit.mutable_decode_peer()->set_control_address("peer:1");
      submit.mutable_decode_peer()->set_incarnation(200);
    }
    core_->OnSessionMessage(kSession, message, now_);
  }
  void Cancel(const std::string& id, uint32_t attempt) {
    wire::SessionRequest message;
    message.set_sequence(next_sequence_++);
    *message.mutable_cancel()->mutable_header() = Header(id, attempt);
    core_->OnSessionMessage(kSession, message, now_);
  }
  // Runs the step that was asked for; false if none was.
  bool Step(const Status& status = OkStatus()) {
    const std::vector<RunStep> steps = Take<RunStep>();
    if (steps.empty()) return false;
    EXPECT_EQ(steps.size(), 1u);
    engine::StepResult result;
    EXPECT_TRUE(runner_.Execute(*steps[0].plan, nullptr, result).ok());
    core_->OnStepDone(status, result, now_);
    return true;
  }
  void RunAll() {
    while (Step()) {
    }
  }
  void Advance(Duration by) {
    now_ += by;
    core_->Tick(now_);
  }

  // ---- As a prefill worker would ----
  IncomingCallId Reserve(const std::string& id, uint32_t attempt,
                         int tokens = 10) {
    wire::ReserveRequest request;
    *request.mutable_header() = Header(id, attempt);
    *request.mutable_request() = Generation(tokens, 5);
    *request.mutable_identity() = Identity();
    request.set_sender_incarnation(300);
    core_->OnPeerCall(++last_call_, request, now_);
    return last_call_;
  }
  // Answers the grant asked for with capability id 1000 + grant.
  GrantId AnswerGrant() {
    const std::vector<GrantCapability> grants = Take<GrantCapability>();
    EXPECT_EQ(grants.size(), 1u);
    wire::TransferCapability capability;
    capability.set_capability_id(1000 + grants.at(0).grant);
    for (const engine::PageId page : grants.at(0).pages) {
      capability.add_page_ids(static_cast<uint32_t>(page));
    }
    core_->OnGranted(grants.at(0).grant, capability, now_);
    return grants.at(0).grant;
  }
  void Commit(const std::string& id, uint32_t attempt, GrantId grant,
              uint64_t digest = 42) {
    wire::CommitRequest request;
    *request.mutable_header() = Header(id, attempt);
    request.set_capability_id(1000 + grant);
    request.set_digest(digest);
    request.mutable_first_output()->add_tokens(9);
    core_->OnPeerCall(++last_call_, request, now_);
  }
  void Abort(const std::string& id, uint32_t attempt) {
    wire::AbortRequest request;
    *request.mutable_header() = Header(id, attempt);
    core_->OnPeerCall(++last_call_, request, now_);
  }

  // ---- As a decode worker would ----
  PeerCallId TakeCall() {
    const std::vector<CallPeer> calls = Take<CallPeer>();
    EXPECT_EQ(calls.size(), 1u);
    if (calls.empty()) return 0;
    call_ = calls[0];
    return calls[0].call;
  }
  template <typename T>
  bool LastCallIs() const {
    return std::holds_alternative<T>(call_.request);
  }
  wire::ReserveResponse Reserved(int pages, uint32_t present = 0) const {
    wire::ReserveResponse response;
    response.set_present_tokens(present);
    wire::TransferCapability& capability = *response.mutable_capability();
    capability.set_capability_id(77);
    capability.set_incarnation(200);
    capability.set_num_layers(static_cast<uint32_t>(model_.num_layers));
    capability.set_slice_bytes(
        static_cast<uint64_t>(model_.Layout().slice_bytes()));
    capability.set_expires_in_ms(3000);
    for (int i = 0; i < pages; ++i) capability.add_page_ids(i);
    return response;
  }
  void Acknowledge(StreamId stream, uint32_t extent_begin,
                   const std::vector<uint64_t>& checksums) {
    core_->OnSlicesSent({.stream = stream,
                         .layer_begin = 0,
                         .layer_end = model_.num_layers,
                         .extent_begin = extent_begin,
                         .ok = true,
                         .checksums = checksums,
                         .transport = "test"},
                        now_);
  }

  fakes::FakeModelConfig model_;
  engine::EngineConfig engine_config_;
  std::unique_ptr<engine::EngineCore> engine_;
  fakes::FakeRunner runner_{model_, 32};
  std::unique_ptr<WorkerCore> core_;
  TimePoint now_{seconds(1000)};
  uint64_t next_sequence_ = 2;
  IncomingCallId last_call_ = 0;
  CallPeer call_;
  std::vector<WorkerEffect> effects_;
  std::vector<Failure> failures_;
};

class PrefillWorkerCoreTest : public WorkerCoreTest {
 protected:
  PrefillWorkerCoreTest() : WorkerCoreTest({}, wire::ROLE_PREFILL) {}
};

}  // namespace tidepool::worker
