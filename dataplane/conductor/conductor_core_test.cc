#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "dataplane/conductor/conductor_core_test_util.h"

namespace tidepool::conductor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Failure = wire::RequestFailure;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- Fleet ----

TEST_F(ConductorCoreTest, IsReadyOnceADecodeWorkerReportedItsLoad) {
  AddWorker("prefill", wire::ROLE_PREFILL);
  EXPECT_FALSE(core_->Ready());
  AddWorker("decode", wire::ROLE_DECODE);
  EXPECT_TRUE(core_->Ready());
  EXPECT_EQ(core_->AddWorker("again", "decode:1", now_).status().code(),
            Code::kAlreadyExists);
}

TEST_F(ConductorCoreTest, TellsHowFarAWorkerHasLoaded) {
  const WorkerId id = *core_->AddWorker("w", "w:1", now_);
  wire::DescribeResponse description;
  description.set_role(wire::ROLE_DECODE);
  for (int i = 0; i < 20; ++i) {
    const ConnectWorker connect = Take<ConnectWorker>().at(0);
    core_->OnConnected(connect.connection, now_);
    description.set_load_progress(static_cast<float>(i) / 20);
    core_->OnDescribed(connect.connection, description);
    core_->OnDisconnected(connect.connection, Unavailable("loading"), now_);
    const WorkerStatus status = core_->Workers().at(0);
    EXPECT_TRUE(status.loading);
    EXPECT_EQ(status.failures, 0u);
    EXPECT_EQ(status.description.load_progress(), description.load_progress());
    // However long it takes: the backoff stays short, jitter included.
    const Duration pause = core_->NextDeadline() - now_;
    EXPECT_LE(pause, ConductorCoreConfig{}.loading_backoff_max * 3 / 2);
    Advance(pause);
  }
  Take<SendToWorker>();
  core_->OnDisconnected(Take<ConnectWorker>().at(0).connection,
                        Unavailable("refused"), now_);
  EXPECT_FALSE(core_->Workers().at(0).loading);  // it died
  EXPECT_EQ(core_->Workers().at(0).failures, 1u);
  Advance(core_->NextDeadline() - now_);
  Peer peer{.id = id, .connection = Take<ConnectWorker>().at(0).connection};
  Greet(peer, wire::ROLE_DECODE);
  EXPECT_FALSE(core_->Workers().at(0).loading);
  core_->OnDescribed(peer.connection, description);
  EXPECT_EQ(core_->Workers().at(0).description.max_model_len(), 1000u);
  core_->OnDisconnected(peer.connection, Unavailable("died"), now_);
  EXPECT_EQ(core_->Workers().at(0).load.pages_total(), 0u);
}

TEST_F(ConductorCoreTest, ReconnectsWithGrowingBackoff) {
  const WorkerId id = *core_->AddWorker("w", "w:1", now_);
  Duration last{0};
  for (int i = 0; i < 4; ++i) {
    const ConnectWorker connect = Take<ConnectWorker>().at(0);
    EXPECT_EQ(connect.worker, id);
    core_->OnDisconnected(connect.connection, Unavailable("refused"), now_);
    EXPECT_TRUE(Take<ConnectWorker>().empty());
    const Duration pause = core_->NextDeadline() - now_;
    EXPECT_GT(pause, last / 3);
    last = pause;
    Advance(pause);
  }
  EXPECT_GE(last, milliseconds(200));
  EXPECT_EQ(core_->Workers().at(0).failures, 4u);
}

TEST_F(ConductorCoreTest, DropsAWorkerThatSendsNoHelloOrABadOne) {
  ASSERT_TRUE(core_->AddWorker("w", "w:1", now_).ok());
  core_->OnConnected(Take<ConnectWorker>().at(0).connection, now_);
  Advance(seconds(10));
  EXPECT_THAT(Take<DisconnectWorker>().at(0).reason, HasSubstr("hello"));
  Advance(seconds(1));
  Peer peer{.connection = Take<ConnectWorker>().at(0).connection};
  Take<SendToWorker>();
  Greet(peer, wire::ROLE_UNSPECIFIED);
  EXPECT_THAT(Take<DisconnectWorker>().at(0).reason, HasSubstr("role"));
}

TEST_F(ConductorCoreTest, DropsASilentWorkerAndRetriesItsRequests) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(TakeSubmits().size(), 1u);
  Advance(seconds(4));
  Load(decode);
  Advance(seconds(4));
  EXPECT_TRUE(Take<DisconnectWorker>().empty());
  Advance(seconds(2));
  EXPECT_THAT(Take<DisconnectWorker>().at(0).reason, HasSubstr("silent"));
  EXPECT_EQ(core_->Stats().retries, 1u);
}

TEST_F(ConductorCoreTest, AMissingMessageEndsTheSession) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ++decode.sequence;
  Load(decode);
  EXPECT_EQ(Take<DisconnectWorker>().size(), 1u);
  EXPECT_EQ(core_->Stats().gaps, 1u);
  Load(decode);  // late: ignored
  EXPECT_TRUE(Take<DisconnectWorker>().empty());
}

// ---- The way of a request ----

TEST_F(ConductorCoreTest, GivesThePrefillWorkerTheDecodePeer) {
  Peer prefill = AddWorker("prefill", wire::ROLE_PREFILL);
  AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  const std::vector<Sent> sent = TakeSubmits();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].connection, prefill.connection);
  EXPECT_EQ(sent[0].submit.decode_peer().control_address(), "decode:1");
  EXPECT_EQ(sent[0].submit.decode_peer().incarnation(), 100u);
  EXPECT_EQ(sent[0].submit.header().attempt(), 1u);
  EXPECT_EQ(sent[0].submit.header().conductor_incarnation(), 5u);
  EXPECT_EQ(sent[0].submit.header().timeout_ms(), 600'000u);
  EXPECT_EQ(sent[0].submit.request().tokens_size(), 10);
}

TEST_F(ConductorCoreTest, EmitsTokensOnceAndEndsOnce) {
  Peer prefill = AddWorker("prefill", wire::ROLE_PREFILL);
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  now_ += milliseconds(5);
  Output(decode, "a", 1, 0, {1});
  HandOver(prefill, "a", 1);
  Output(decode, "a", 1, 0, {1, 2});  // repeats the first
  Output(decode, "a", 1, 1, {2});     // all known
  Output(decode, "a", 1, 2, {3}, wire::FINISH_REASON_LENGTH);
  EXPECT_THAT(TakeTokens(), ElementsAre(1, 2, 3));
  EXPECT_EQ(TakeEnd(), EndReason::kFinished);
  EXPECT_EQ(end_.record.attempts.size(), 1u);
  EXPECT_EQ(end_.record.attempts[0].transport, "tcp");
  EXPECT_EQ(end_.record.first_token, now_);
  EXPECT_THAT(end_.record.Explain(), HasSubstr("prefill → decode"));
  EXPECT_NE(core_->Find("a"), nullptr);
  Output(decode, "a", 1, 3, {4});  // too late
  EXPECT_TRUE(TakeTokens().empty());
}

TEST_F(ConductorCoreTest, ContinuesElsewhereAfterADecodeWorkerDied) {
  Peer first = AddWorker("decode-0", wire::ROLE_DECODE);
  Peer second = AddWorker("decode-1", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(TakeSubmits().at(0).connection, first.connection);
  Output(first, "a", 1, 0, {1, 2});
  core_->OnDisconnected(first.connection, Unavailable("reset"), now_);
  const Sent sent = TakeSubmits().at(0);
  EXPECT_EQ(sent.connection, second.connection);
  EXPECT_EQ(sent.submit.header().attempt(), 2u);
  EXPECT_EQ(sent.submit.request().tokens_size(), 12);
  EXPECT_EQ(sent.submit.request().prompt_tokens(), 10u);
  EXPECT_EQ(sent.submit.request().sampling().prompt_logprobs(), -1);
  Output(second, "a", 2, 2, {3}, wire::FINISH_REASON_STOP);
  EXPECT_THAT(TakeTokens(), ElementsAre(1, 2, 3));
  EXPECT_EQ(TakeEnd(), EndReason::kFinished);
  EXPECT_THAT(end_.record.Explain(), HasSubstr("session ended: reset"));
}

TEST_F(ConductorCoreTest, AGapInTheOutputIsRetried) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  TakeSubmits();
  Output(decode, "a", 1, 0, {1});
  Output(decode, "a", 1, 2, {3});
  const Sent sent = TakeSubmits().at(0);
  EXPECT_EQ(sent.submit.header().attempt(), 2u);
  EXPECT_EQ(sent.submit.request().tokens_size(), 11);
  EXPECT_THAT(std::exchange(cancels_, {}),
              ElementsAre(CancelOf("a", 1, decode)));
  EXPECT_THAT(TakeTokens(), ElementsAre(1));
}

TEST_F(ConductorCoreTest, APrefillWorkerIsNotNeededAfterTheHandover) {
  Peer prefill = AddWorker("prefill", wire::ROLE_PREFILL);
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  ASSERT_TRUE(Submit("b").ok());
  ASSERT_TRUE(Submit("c").ok());
  TakeSubmits();
  HandOver(prefill, "a", 1);
  Output(decode, "b", 1, 0, {1});
  // Its commit got through, only the answer was lost.
  Fail(prefill, "b", 1, Failure::KIND_PEER);
  core_->OnDisconnected(prefill.connection, Unavailable("died"), now_);
  const std::vector<Sent> sent = TakeSubmits();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].submit.header().request_id(), "c");
}

TEST_F(ConductorCoreTest, AvoidsTheDecodeWorkerThatFailedARequest) {
  Peer prefill = AddWorker("prefill", wire::ROLE_PREFILL);
  AddWorker("decode-0", wire::ROLE_DECODE);
  AddWorker("decode-1", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(TakeSubmits().at(0).submit.decode_peer().control_address(),
            "decode-0:1");
  Fail(prefill, "a", 1, Failure::KIND_PEER);
  EXPECT_EQ(TakeSubmits().at(0).submit.decode_peer().control_address(),
            "decode-1:1");
}

TEST_F(ConductorCoreTest, AvoidsAPrefillWorkerThatReachesNoDecodeWorker) {
  Peer prefill = AddWorker("prefill", wire::ROLE_PREFILL);
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  for (uint32_t attempt = 1; attempt <= 2; ++attempt) {
    EXPECT_EQ(TakeSubmits().at(0).connection, prefill.connection);
    Fail(prefill, "a", attempt, Failure::KIND_PEER);
    Advance(seconds(1));
  }
  const Sent sent = TakeSubmits().at(0);  // the decode worker does both
  EXPECT_EQ(sent.connection, decode.connection);
  EXPECT_FALSE(sent.submit.has_decode_peer());
}

TEST_F(ConductorCoreTest, ALostDecodeWorkerShortensThePatience) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  Load(decode, 10);
  ASSERT_TRUE(Submit("a").ok());
  for (int i = 0; i < 100; ++i) {
    Advance(seconds(1));
    Load(decode, 10);
  }
  core_->OnDisconnected(decode.connection, Unavailable("died"), now_);
  Advance(seconds(29));
  EXPECT_TRUE(Take<EndRequest>().empty());
  Advance(seconds(1));
  EXPECT_EQ(TakeEnd(), EndReason::kNoReadyWorker);
}

TEST_F(ConductorCoreTest, ADecodeWorkerThatDrainsShortensThePatience) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  Load(decode, 10);
  ASSERT_TRUE(Submit("a").ok());
  for (int i = 0; i < 100; ++i) {
    Advance(seconds(1));
    Load(decode, 10);
  }
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(Take<EndRequest>().empty());
    Load(decode, 10, /*draining=*/true);
    EXPECT_FALSE(core_->Workers().at(0).ready);
    Advance(seconds(1));
  }
  EXPECT_EQ(TakeEnd(), EndReason::kNoReadyWorker);
}

TEST_F(ConductorCoreTest, ContinuesOnlyOnTheSameModel) {
  Peer first = AddWorker("decode-0", wire::ROLE_DECODE, "m");
  Peer other = AddWorker("decode-1", wire::ROLE_DECODE, "n");
  ASSERT_TRUE(Submit("a").ok());
  TakeSubmits();
  Output(first, "a", 1, 0, {1});
  core_->OnDisconnected(first.connection, Unavailable("died"), now_);
  EXPECT_TRUE(TakeSubmits().empty());
  Wait(seconds(31), {&other});
  EXPECT_EQ(TakeEnd(), EndReason::kNoReadyWorker);
}

TEST_F(ConductorCoreTest, GivesUpAfterItsAttempts) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  for (uint32_t attempt = 1; attempt <= 5; ++attempt) {
    ASSERT_EQ(TakeSubmits().size(), 1u) << attempt;
    Fail(decode, "a", attempt, Failure::KIND_INTERNAL);
    Advance(seconds(2));
  }
  EXPECT_EQ(TakeEnd(), EndReason::kAttemptsSpent);
  EXPECT_EQ(end_.record.attempts.size(), 5u);
}

TEST_F(ConductorCoreTest, TellsTheClientWhatCanRunNowhere) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  Fail(decode, "a", 1, Failure::KIND_INVALID);
  EXPECT_EQ(TakeEnd(), EndReason::kInvalid);
  EXPECT_EQ(end_.message, "why");
  ASSERT_TRUE(Submit("b", 1000).ok());
  EXPECT_EQ(TakeEnd(), EndReason::kInvalid);
}

TEST_F(ConductorCoreTest, WaitsForAnOverloadedWorkerWithoutSpendingAttempts) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  for (uint32_t attempt = 1; attempt <= 20; ++attempt) {
    ASSERT_EQ(TakeSubmits().size(), 1u) << attempt;
    Fail(decode, "a", attempt, Failure::KIND_PEER_OVERLOADED);
    EXPECT_TRUE(TakeSubmits().empty());  // not at once
    Wait(seconds(2), {&decode});
  }
  Output(decode, "a", 21, 0, {1}, wire::FINISH_REASON_STOP);
  EXPECT_EQ(TakeEnd(), EndReason::kFinished);
  EXPECT_EQ(end_.record.overloads, 20u);
  EXPECT_EQ(end_.record.attempts.size(), 2u);
}

// ---- Waiting ----

TEST_F(ConductorCoreTest, TellsFullFromAbsentWorkers) {
  ASSERT_TRUE(Submit("a").ok());
  Advance(seconds(30));
  EXPECT_EQ(TakeEnd(), EndReason::kNoReadyWorker);
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  Load(decode, 10);
  ASSERT_TRUE(Submit("b").ok());
  for (int i = 0; i < 299; ++i) {
    Advance(seconds(1));
    Load(decode, 10);
  }
  EXPECT_TRUE(Take<EndRequest>().empty());
  Advance(seconds(1));
  EXPECT_EQ(TakeEnd(), EndReason::kNoRoom);
}

TEST_F(ConductorCoreTest, TellsWhatTheWaitingLack) {
  Peer prefill = AddWorker("prefill", wire::ROLE_PREFILL);
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(core_->Stats().waiting_for_decode, 1u);  // nobody can
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  EXPECT_EQ(core_->Stats().waiting, 0u);
  Load(decode, 10);
  ASSERT_TRUE(Submit("b").ok());
  ASSERT_TRUE(Submit("c").ok());
  EXPECT_EQ(core_->Stats().waiting_for_decode, 2u);
  EXPECT_EQ(core_->Stats().waiting_prompt_tokens, 0u);
  Load(prefill, 1000);
  Load(decode);
  EXPECT_EQ(core_->Stats().waiting, 2u);
  EXPECT_EQ(core_->Stats().waiting_for_decode, 0u);
  EXPECT_GT(core_->Stats().waiting_prompt_tokens, 0u);
}

TEST_F(ConductorCoreTest, ServesTheOldestFirstWhenThereIsRoom) {
  ASSERT_TRUE(Submit("a").ok());
  ASSERT_TRUE(Submit("b").ok());
  AddWorker("decode", wire::ROLE_DECODE);
  const std::vector<Sent> sent = TakeSubmits();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].submit.header().request_id(), "a");
}

TEST_F(ConductorCoreTest, GivesADrainingWorkerNothingNew) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  TakeSubmits();
  Load(decode, 1, true);
  EXPECT_FALSE(core_->Ready());
  ASSERT_TRUE(Submit("b").ok());
  EXPECT_TRUE(TakeSubmits().empty());
  Output(decode, "a", 1, 0, {1}, wire::FINISH_REASON_STOP);
  EXPECT_EQ(TakeEnd(), EndReason::kFinished);
}

TEST_F(ConductorCoreTest, EndsARequestAtItsTimeoutAndTellsItsWorkers) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a", 10, seconds(3)).ok());
  TakeSubmits();
  Advance(seconds(3));
  EXPECT_EQ(TakeEnd(), EndReason::kExpired);
  EXPECT_THAT(TakeCancels(), ElementsAre(CancelOf("a", 1, decode)));
}

TEST_F(ConductorCoreTest, RetriesWhatShowsNoProgress) {
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  TakeSubmits();
  Wait(seconds(100), {&decode});
  Output(decode, "a", 1, 0, {1});
  Wait(seconds(100), {&decode});
  EXPECT_TRUE(TakeSubmits().empty());
  Wait(seconds(21), {&decode});
  EXPECT_EQ(TakeSubmits().size(), 1u);
}

// ---- Cancelling ----

TEST_F(ConductorCoreTest, CancelsEverywhereAndEndsOnce) {
  Peer prefill = AddWorker("prefill", wire::ROLE_PREFILL);
  Peer decode = AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  TakeSubmits();
  core_->Cancel("a", "the client left", now_);
  EXPECT_EQ(TakeEnd(), EndReason::kCancelled);
  EXPECT_THAT(TakeCancels(),
              ElementsAre(CancelOf("a", 1, prefill), CancelOf("a", 1, decode)));
  core_->Cancel("a", "again", now_);
  EXPECT_TRUE(Take<EndRequest>().empty());
  // The cancel was lost, or overtaken: somebody still works for it.
  Output(decode, "a", 1, 0, {1});
  EXPECT_THAT(TakeCancels(), ElementsAre(CancelOf("a", 1, decode)));
  EXPECT_EQ(core_->Stats().stale_outputs, 1u);
  EXPECT_TRUE(TakeTokens().empty());
}

TEST_F(ConductorCoreTest, ARemovedWorkersRequestsGoElsewhere) {
  Peer first = AddWorker("decode-0", wire::ROLE_DECODE);
  Peer second = AddWorker("decode-1", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  TakeSubmits();
  core_->RemoveWorker(first.id, now_);
  EXPECT_EQ(TakeSubmits().at(0).connection, second.connection);
  EXPECT_EQ(core_->Workers().size(), 1u);
}

TEST_F(ConductorCoreTest, ShutdownEndsEverything) {
  AddWorker("decode", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  core_->Shutdown(now_);
  EXPECT_EQ(TakeEnd(), EndReason::kShutdown);
  EXPECT_EQ(Take<DisconnectWorker>().size(), 1u);
  EXPECT_EQ(Submit("b").code(), Code::kUnavailable);
  EXPECT_EQ(core_->NextDeadline(), TimePoint::max());
}

// ---- Bounds ----

class BoundedConductorCoreTest : public ConductorCoreTest {
 protected:
  BoundedConductorCoreTest()
      : ConductorCoreTest({.max_workers = 1,
                           .max_requests = 4,
                           .max_waiting_requests = 2,
                           .max_records = 2}) {}
};

TEST_F(BoundedConductorCoreTest, RefusesWhatIsAboveItsBounds) {
  ASSERT_TRUE(Submit("a").ok());
  ASSERT_TRUE(Submit("b").ok());
  EXPECT_EQ(Submit("c").code(), Code::kResourceExhausted);
  EXPECT_EQ(Submit("a").code(), Code::kResourceExhausted);
  AddWorker("decode", wire::ROLE_DECODE);  // takes both
  EXPECT_EQ(Submit("a").code(), Code::kInvalidArgument);
  ASSERT_TRUE(Submit("c").ok());
  ASSERT_TRUE(Submit("d").ok());
  EXPECT_EQ(Submit("e").code(), Code::kResourceExhausted);
  EXPECT_EQ(core_->AddWorker("x", "x:1", now_).status().code(),
            Code::kResourceExhausted);
}

TEST_F(BoundedConductorCoreTest, RemembersTheLastRecordsOnly) {
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(Submit(id).ok());
    core_->Cancel(id, "", now_);
  }
  EXPECT_EQ(core_->Find("a"), nullptr);
  ASSERT_NE(core_->Find("c"), nullptr);
  EXPECT_THAT(core_->Find("c")->Explain(), HasSubstr("cancelled"));
}

TEST_F(BoundedConductorCoreTest, RefusesMalformedRequests) {
  EXPECT_EQ(Submit("").code(), Code::kInvalidArgument);
  EXPECT_EQ(Submit("a", 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(Submit("a", 1, Duration(0)).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tidepool::conductor
