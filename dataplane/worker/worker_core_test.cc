#include "dataplane/worker/worker_core_testing.h"

namespace tidepool::worker {
namespace {

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

TEST_F(WorkerCoreTest, ConductorsCannotTouchEachOthersRequests) {
  OpenSession();
  Submit("x/5/a", 1, 5, 3);
  OpenSession(2, "c/5/x");
  wire::SessionRequest message;
  message.set_sequence(2);
  wire::RequestHeader& header = *message.mutable_cancel()->mutable_header();
  header = Header("a", 1);
  header.set_conductor_id("c/5/x");
  core_->OnSessionMessage(2, message, now_);
  RunAll();
  EXPECT_EQ(TakeOutputs().size(), 3u);
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
  TakeMessages();
  core_->Drain(seconds(10), now_);
  const std::vector<SendToConductor> told = TakeMessages();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].message.load().draining());
  Submit("b", 1, 5, 3);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_DRAINING);
  Reserve("c", 1);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kResourceExhausted);
  EXPECT_FALSE(core_->Idle());
  RunAll();
  EXPECT_EQ(TakeOutputs().size(), 3u);
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
