#include "dataplane/worker/worker_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "dataplane/engine/engine_core.h"
#include "tests/fakes/fake_model.h"

namespace tidepool::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Failure = wire::RequestFailure;

constexpr SessionId kSession = 1;

// One worker core on a real engine core; the test plays everybody else.
class WorkerCoreTest : public ::testing::Test {
 protected:
  explicit WorkerCoreTest(WorkerCoreConfig config = {}) {
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
    hello.set_role(wire::ROLE_DECODE);
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

// ---- Sessions ----

TEST_F(WorkerCoreTest, AnswersAHelloWithItsDescriptionAndLoad) {
  OpenSession();
  const std::vector<SendToConductor> messages = TakeMessages();
  ASSERT_GE(messages.size(), 2u);
  EXPECT_EQ(messages[0].message.sequence(), 1u);
  EXPECT_EQ(messages[0].message.hello().description().incarnation(), 100u);
  EXPECT_EQ(messages[1].message.sequence(), 2u);
  EXPECT_EQ(messages[1].message.load().pages_total(), 32u);
}

TEST_F(WorkerCoreTest, EndsASessionThatDoesNotBeginWithAHello) {
  Submit("a", 1, 5, 3);
  EXPECT_EQ(Take<EndSession>().size(), 1u);
  EXPECT_EQ(core_->Stats().sessions, 0u);
}

TEST_F(WorkerCoreTest, AMissingMessageEndsTheSessionAndItsRequests) {
  OpenSession();
  Submit("a", 1, 5, 3);
  ++next_sequence_;
  Cancel("b", 1);
  EXPECT_EQ(Take<EndSession>().size(), 1u);
  RunAll();
  EXPECT_TRUE(core_->Idle());
  EXPECT_EQ(core_->Stats().session_gaps_total, 1u);
}

TEST_F(WorkerCoreTest, ANewSessionOfAConductorReplacesTheOldOne) {
  OpenSession();
  Submit("a", 1, 5, 3);
  OpenSession(2);
  const std::vector<EndSession> ended = Take<EndSession>();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].session, kSession);
  RunAll();
  EXPECT_TRUE(core_->Idle());
  EXPECT_EQ(core_->Stats().sessions, 1u);
}

TEST_F(WorkerCoreTest, ReportsLoadAtLeastEverySecond) {
  OpenSession();
  Advance(milliseconds(1));
  TakeMessages();
  EXPECT_LE(core_->NextDeadline(), now_ + seconds(1));
  Advance(milliseconds(500));
  EXPECT_TRUE(TakeMessages().empty());  // it did not change
  Advance(milliseconds(501));
  ASSERT_EQ(TakeMessages().size(), 1u);
}

// ---- Whole requests ----

TEST_F(WorkerCoreTest, GeneratesTheOraclesTokensWithOneMessagePerStep) {
  OpenSession();
  Submit("a", 1, 5, 4);
  Submit("b", 1, 6, 4);
  TakeMessages();
  std::vector<int32_t> tokens;
  while (Step()) {
    const std::vector<SendToConductor> messages = TakeMessages();
    EXPECT_LE(messages.size(), 1u);
    for (const SendToConductor& send : messages) {
      for (const auto& output : send.message.outputs().outputs()) {
        if (output.request_id() != "a") continue;
        EXPECT_EQ(output.first_index(), tokens.size());
        tokens.push_back(output.tokens(0));
      }
    }
  }
  const wire::GenerationRequest request = Generation(5, 4);
  const std::vector<int32_t> prompt(request.tokens().begin(),
                                    request.tokens().end());
  engine::SamplingParams sampling;
  sampling.max_tokens = 4;
  sampling.ignore_eos = true;
  EXPECT_EQ(tokens, fakes::Oracle(model_, prompt, sampling, {}, 64).tokens);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(WorkerCoreTest, RefusesWhatCanRunNowhereAsInvalid) {
  OpenSession();
  Submit("a", 1, 64, 4);
  const auto failure = TakeFailure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind(), Failure::KIND_INVALID);
  EXPECT_THAT(failure->message(), ::testing::HasSubstr("64"));
}

TEST_F(WorkerCoreTest, RefusesAnAttemptThatIsOverAndReplacesAnOlderOne) {
  OpenSession();
  Submit("a", 2, 5, 3);
  Submit("a", 1, 5, 3);
  EXPECT_EQ(TakeFailure()->attempt(), 1u);
  Submit("a", 3, 5, 3);
  RunAll();
  for (const wire::RequestOutput& output : TakeOutputs()) {
    EXPECT_EQ(output.attempt(), 3u);
  }
  Submit("a", 3, 5, 3);
  EXPECT_EQ(TakeFailure()->attempt(), 3u);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(WorkerCoreTest, EndsARequestAtItsDeadline) {
  OpenSession();
  Submit("a", 1, 5, 3);
  Advance(seconds(21));
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_EXPIRED);
  RunAll();
  EXPECT_TRUE(core_->Idle());
}

TEST_F(WorkerCoreTest, AFailedStepEndsItsRequests) {
  OpenSession();
  Submit("a", 1, 5, 3);
  Step(Internal("the device is gone"));
  const auto failure = TakeFailure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind(), Failure::KIND_INTERNAL);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(WorkerCoreTest, DrainingItEndsWhatItHasAndTakesNoMore) {
  OpenSession();
  Submit("a", 1, 5, 3);
  core_->Drain(now_);
  Submit("b", 1, 5, 3);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_DRAINING);
  Reserve("c", 1);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kResourceExhausted);
  EXPECT_FALSE(core_->Idle());
  RunAll();
  EXPECT_EQ(TakeOutputs().size(), 3u);
  EXPECT_TRUE(core_->Idle());
}

// ---- Reception ----

TEST_F(WorkerCoreTest, ReservesOnlyForAConductorThatIsHere) {
  Reserve("a", 1);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kFailedPrecondition);
  OpenSession();
  Reserve("a", 1);
  AnswerGrant();
  EXPECT_TRUE(TakeReplyStatus().ok());
}

TEST_F(WorkerCoreTest, RefusesAPeerOfAnotherModel) {
  OpenSession();
  wire::ReserveRequest request;
  *request.mutable_header() = Header("a", 1);
  *request.mutable_request() = Generation(10, 5);
  *request.mutable_identity() = Identity();
  request.mutable_identity()->set_numerics_id("other");
  core_->OnPeerCall(1, request, now_);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kFailedPrecondition);
}

TEST_F(WorkerCoreTest, ARepeatedReserveGetsTheSameCapability) {
  OpenSession();
  Reserve("a", 1);
  Reserve("a", 1);  // before the grant
  AnswerGrant();
  Reserve("a", 1);
  const std::vector<ReplyToPeer> replies = Take<ReplyToPeer>();
  ASSERT_EQ(replies.size(), 3u);
  for (const ReplyToPeer& reply : replies) {
    ASSERT_TRUE(reply.response.ok());
    const auto& response = std::get<wire::ReserveResponse>(*reply.response);
    EXPECT_EQ(response.capability().capability_id(), 1001u);
    EXPECT_EQ(response.capability().page_ids_size(), 3);
    EXPECT_EQ(response.transfer_address(), "me:2");
  }
  EXPECT_TRUE(Take<GrantCapability>().empty());
}

TEST_F(WorkerCoreTest, AnExpiredReservationIsQuarantinedUntilRevoked) {
  OpenSession();
  Reserve("a", 1);
  const GrantId grant = AnswerGrant();
  Advance(seconds(15));
  Reserve("a", 1);  // renews
  Advance(seconds(4));
  EXPECT_TRUE(Take<RevokeCapability>().empty());
  // The request's own deadline comes first.
  Advance(seconds(2));
  ASSERT_EQ(Take<RevokeCapability>().size(), 1u);
  EXPECT_EQ(core_->Stats().quarantined, 1u);
  EXPECT_EQ(engine_->Stats().pages_held, 3);
  core_->OnRevoked(grant, {}, now_);
  EXPECT_EQ(engine_->Stats().pages_free, 32);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(WorkerCoreTest, ACommitSealsChecksAndDecodes) {
  OpenSession();
  Reserve("a", 1);
  const GrantId grant = AnswerGrant();
  Take<ReplyToPeer>();
  Commit("a", 1, grant);
  ASSERT_EQ(Take<RevokeCapability>().size(), 1u);
  EXPECT_TRUE(Take<ReplyToPeer>().empty());
  core_->OnRevoked(grant, {.extents = 9, .complete = true, .digest = 42}, now_);
  EXPECT_TRUE(TakeReplyStatus().ok());
  std::vector<wire::RequestOutput> outputs = TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].tokens(0), 9);
  Commit("a", 1, grant);  // the answer was lost
  EXPECT_TRUE(TakeReplyStatus().ok());
  Abort("a", 1);  // nor may the sender end it now
  EXPECT_TRUE(TakeReplyStatus().ok());
  RunAll();
  outputs = TakeOutputs();
  ASSERT_EQ(outputs.size(), 4u);
  EXPECT_EQ(outputs.back().finish_reason(), wire::FINISH_REASON_LENGTH);
  EXPECT_TRUE(core_->Idle());
  Commit("a", 1, grant);  // even after the end
  EXPECT_TRUE(TakeReplyStatus().ok());
}

TEST_F(WorkerCoreTest, ACommitOfOtherBytesIsDataLoss) {
  OpenSession();
  for (const transfer::Received& received :
       {transfer::Received{.extents = 9, .complete = true, .digest = 43},
        transfer::Received{.extents = 8, .complete = false, .digest = 42}}) {
    const std::string id = received.complete ? "a" : "b";
    Reserve(id, 1);
    const GrantId grant = AnswerGrant();
    Take<ReplyToPeer>();
    Commit(id, 1, grant);
    core_->OnRevoked(grant, received, now_);
    EXPECT_EQ(TakeReplyStatus().code(), Code::kDataLoss);
    EXPECT_TRUE(core_->Idle());
  }
  EXPECT_EQ(engine_->Stats().pages_free, 32);
}

TEST_F(WorkerCoreTest, AnEndThatOvertakesTheReserveRefusesIt) {
  OpenSession();
  Abort("a", 1);
  EXPECT_TRUE(TakeReplyStatus().ok());
  Reserve("a", 1);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kFailedPrecondition);
  Cancel("b", 2);
  Reserve("b", 1);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kFailedPrecondition);
  Reserve("b", 3);
  AnswerGrant();
  EXPECT_TRUE(TakeReplyStatus().ok());
}

TEST_F(WorkerCoreTest, TheEndOfTheSessionRevokesItsReservations) {
  OpenSession();
  Reserve("a", 1);  // not granted yet
  core_->OnSessionClosed(kSession, now_);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kAborted);
  EXPECT_TRUE(Take<RevokeCapability>().empty());
  const GrantId grant = AnswerGrant();
  ASSERT_EQ(Take<RevokeCapability>().size(), 1u);
  core_->OnRevoked(grant, {}, now_);
  EXPECT_TRUE(core_->Idle());
  EXPECT_EQ(engine_->Stats().pages_free, 32);
}

// ---- Handover ----

TEST_F(WorkerCoreTest, CommitsOnceEverySliceIsAcknowledged) {
  OpenSession();
  Submit("a", 1, 10, 5, true);  // two steps of 8 and 2 tokens
  const PeerCallId reserve = TakeCall();
  ASSERT_TRUE(LastCallIs<wire::ReserveRequest>());
  EXPECT_EQ(call_.address, "peer:1");
  Step();
  core_->OnPeerReply(reserve, PeerResponse(Reserved(3)), now_);
  const std::vector<OpenStream> opened = Take<OpenStream>();
  ASSERT_EQ(opened.size(), 1u);
  const StreamId stream = opened[0].target->stream;
  Acknowledge(stream, 0, {1, 2, 4, 5, 7, 8});  // [layer][page] of two pages
  Step();
  EXPECT_TRUE(Take<CallPeer>().empty());
  Acknowledge(stream, 2, {3, 6, 9});
  const PeerCallId commit = TakeCall();
  ASSERT_TRUE(LastCallIs<wire::CommitRequest>());
  const std::vector<uint64_t> checksums = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto& request = std::get<wire::CommitRequest>(call_.request);
  EXPECT_EQ(request.digest(), transfer::DigestOf(checksums));
  EXPECT_EQ(request.capability_id(), 77u);
  EXPECT_EQ(request.first_output().tokens_size(), 1);

  ASSERT_EQ(Take<CloseStream>().size(), 1u);
  EXPECT_EQ(engine_->Stats().pages_held, 3);
  core_->OnStreamClosed(stream, now_);
  EXPECT_EQ(engine_->Stats().pages_held, 0);
  TakeMessages();
  core_->OnPeerReply(commit, PeerResponse(wire::CommitResponse()), now_);
  const std::vector<SendToConductor> messages = TakeMessages();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].message.handed_over().prefill_tokens(), 10u);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(WorkerCoreTest, RepeatsAReserveWhoseAnswerWasLostThenGivesUp) {
  OpenSession();
  Submit("a", 1, 4, 5, true);
  RunAll();
  PeerCallId call = TakeCall();
  for (int repeat = 0; repeat < 2; ++repeat) {
    core_->OnPeerReply(call, Unavailable("lost"), now_);
    EXPECT_TRUE(Take<CallPeer>().empty());
    Advance(seconds(1));
    call = TakeCall();
    ASSERT_TRUE(LastCallIs<wire::ReserveRequest>());
  }
  core_->OnPeerReply(call, DeadlineExceeded("lost"), now_);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_PEER);
  // Memory first, then the peer is told, as it may hold a reservation.
  const std::vector<CloseStream> closed = Take<CloseStream>();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_TRUE(Take<CallPeer>().empty());
  core_->OnStreamClosed(closed[0].stream, now_);
  EXPECT_EQ(engine_->Stats().pages_held, 0);
  call = TakeCall();
  ASSERT_TRUE(LastCallIs<wire::AbortRequest>());
  core_->OnPeerReply(call, PeerResponse(wire::AbortResponse()), now_);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(WorkerCoreTest, AnOverloadedPeerIsNotAFailedOne) {
  OpenSession();
  Submit("a", 1, 4, 5, true);
  RunAll();
  core_->OnPeerReply(TakeCall(), ResourceExhausted("full"), now_);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_PEER_OVERLOADED);
  core_->OnStreamClosed(Take<CloseStream>().at(0).stream, now_);
  EXPECT_TRUE(Take<CallPeer>().empty());  // it holds nothing
  EXPECT_TRUE(core_->Idle());
}

TEST_F(WorkerCoreTest, RefusesACapabilityThatDoesNotFit) {
  const wire::ReserveResponse bad[] = {Reserved(2), Reserved(3, 4),
                                       Reserved(1, 12), Reserved(2, 3)};
  OpenSession();
  for (int i = 0; i < 5; ++i) {
    Submit(fmt::format("r{}", i), 1, 10, 5, true);
    RunAll();
    wire::ReserveResponse response = i < 4 ? bad[i] : Reserved(3);
    if (i == 4) response.mutable_capability()->set_incarnation(201);
    core_->OnPeerReply(TakeCall(), PeerResponse(response), now_);
    EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_PEER) << i;
    EXPECT_TRUE(Take<OpenStream>().empty());
    core_->OnStreamClosed(Take<CloseStream>().at(0).stream, now_);
    core_->OnPeerReply(TakeCall(), PeerResponse(wire::AbortResponse()), now_);
    EXPECT_TRUE(core_->Idle());
  }
}

TEST_F(WorkerCoreTest, RenewsAReservationWhileItStreams) {
  OpenSession();
  Submit("a", 1, 4, 5, true);
  RunAll();
  core_->OnPeerReply(TakeCall(), PeerResponse(Reserved(1)), now_);
  Advance(milliseconds(1001));
  const PeerCallId renewal = TakeCall();
  ASSERT_TRUE(LastCallIs<wire::ReserveRequest>());
  const StreamId stream = Take<OpenStream>().at(0).target->stream;
  Acknowledge(stream, 0, {1, 2, 3});
  EXPECT_TRUE(Take<CallPeer>().empty());  // one call at a time
  core_->OnPeerReply(renewal, PeerResponse(Reserved(1)), now_);
  TakeCall();
  EXPECT_TRUE(LastCallIs<wire::CommitRequest>());
}

TEST_F(WorkerCoreTest, AFailedTransferEndsTheAttempt) {
  OpenSession();
  Submit("a", 1, 4, 5, true);
  RunAll();
  core_->OnPeerReply(TakeCall(), PeerResponse(Reserved(1)), now_);
  const StreamId stream = Take<OpenStream>().at(0).target->stream;
  core_->OnSlicesSent({.stream = stream, .ok = false, .error = "gone"}, now_);
  const auto failure = TakeFailure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind(), Failure::KIND_PEER);
  EXPECT_THAT(failure->message(), ::testing::HasSubstr("gone"));
}

TEST_F(WorkerCoreTest, ADeadlineWhileACallIsDueToBeRepeatedStillCleansUp) {
  OpenSession();
  Submit("a", 1, 4, 5, true);
  RunAll();
  core_->OnPeerReply(TakeCall(), Unavailable("lost"), now_);
  Advance(seconds(21));
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_EXPIRED);
  core_->OnStreamClosed(Take<CloseStream>().at(0).stream, now_);
  const PeerCallId call = TakeCall();
  ASSERT_TRUE(LastCallIs<wire::AbortRequest>());
  core_->OnPeerReply(call, PeerResponse(wire::AbortResponse()), now_);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(WorkerCoreTest, AFirstTokenThatIsTheLastIsNotHandedOver) {
  OpenSession();
  Submit("a", 1, 4, 1, true);
  const PeerCallId reserve = TakeCall();
  RunAll();
  const std::vector<wire::RequestOutput> outputs = TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish_reason(), wire::FINISH_REASON_LENGTH);
  core_->OnStreamClosed(Take<CloseStream>().at(0).stream, now_);
  EXPECT_TRUE(Take<CallPeer>().empty());  // until the reserve is answered
  core_->OnPeerReply(reserve, PeerResponse(Reserved(1)), now_);
  EXPECT_TRUE(Take<OpenStream>().empty());
  const PeerCallId call = TakeCall();
  ASSERT_TRUE(LastCallIs<wire::AbortRequest>());
  core_->OnPeerReply(call, PeerResponse(wire::AbortResponse()), now_);
  EXPECT_TRUE(core_->Idle());
}

// ---- Bounds ----

class BoundedWorkerCoreTest : public WorkerCoreTest {
 protected:
  BoundedWorkerCoreTest()
      : WorkerCoreTest({.max_sessions = 1,
                        .max_requests = 1,
                        .max_ended_attempts = 2,
                        .max_pending_replies = 2}) {}
};

TEST_F(BoundedWorkerCoreTest, RefusesWhatIsAboveItsBounds) {
  OpenSession();
  Submit("a", 1, 5, 3);
  Submit("b", 1, 5, 3);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_OVERLOADED);
  Reserve("c", 1);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kResourceExhausted);
  OpenSession(2, "other");
  EXPECT_EQ(Take<EndSession>().at(0).reason.code(), Code::kResourceExhausted);
}

TEST_F(BoundedWorkerCoreTest, BoundsTheRepeatsThatWaitForOneAnswer) {
  OpenSession();
  for (int i = 0; i < 3; ++i) Reserve("a", 1);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kUnavailable);
  AnswerGrant();
  EXPECT_EQ(Take<ReplyToPeer>().size(), 2u);
}

TEST_F(BoundedWorkerCoreTest, ForgetsTheOldestOfTheAttemptsThatEnded) {
  OpenSession();
  for (const char* id : {"a", "b", "c"}) Cancel(id, 1);
  Reserve("c", 1);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kFailedPrecondition);
  Reserve("a", 1);
  AnswerGrant();
  EXPECT_TRUE(TakeReplyStatus().ok());
}

}  // namespace
}  // namespace tidepool::worker
