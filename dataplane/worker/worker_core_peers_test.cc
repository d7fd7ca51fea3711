#include "dataplane/worker/worker_core_testing.h"

namespace tidepool::worker {
namespace {

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

class ImpatientWorkerCoreTest : public WorkerCoreTest {
 protected:
  ImpatientWorkerCoreTest()
      : WorkerCoreTest(
            {.reservation_ttl = seconds(8), .transfer_timeout = seconds(8)}) {}
};

TEST_F(ImpatientWorkerCoreTest, AnExpiredReservationIsQuarantinedUntilRevoked) {
  OpenSession();
  Reserve("a", 1);
  const GrantId grant = AnswerGrant();
  Advance(seconds(7));
  Reserve("a", 1);  // renews
  Advance(seconds(7));
  EXPECT_TRUE(Take<RevokeCapability>().empty());
  Advance(seconds(1));
  ASSERT_EQ(Take<RevokeCapability>().size(), 1u);
  EXPECT_EQ(core_->Stats().expired_reservations_total, 1u);
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

TEST_F(WorkerCoreTest, AnAbortOfANewerAttemptIsRememberedToo) {
  OpenSession();
  Reserve("a", 1);
  AnswerGrant();
  Take<ReplyToPeer>();
  Abort("a", 2);
  EXPECT_TRUE(TakeReplyStatus().ok());
  Reserve("a", 2);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kFailedPrecondition);
}

TEST_F(WorkerCoreTest, AReservationEndsWithItsRequestsTime) {
  OpenSession();
  Reserve("a", 1);
  AnswerGrant();
  Advance(seconds(15));
  Reserve("a", 1);  // renews for 30 s, though the request has only 5
  EXPECT_TRUE(Take<RevokeCapability>().empty());
  Advance(seconds(5));
  EXPECT_EQ(Take<RevokeCapability>().size(), 1u);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_EXPIRED);
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

TEST_F(PrefillWorkerCoreTest, CommitsOnceEverySliceIsAcknowledged) {
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

TEST_F(PrefillWorkerCoreTest, RepeatsAReserveWhoseAnswerWasLostThenGivesUp) {
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

TEST_F(PrefillWorkerCoreTest, AnOverloadedPeerIsNotAFailedOne) {
  OpenSession();
  Submit("a", 1, 4, 5, true);
  RunAll();
  core_->OnPeerReply(TakeCall(), ResourceExhausted("full"), now_);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_PEER_OVERLOADED);
  core_->OnStreamClosed(Take<CloseStream>().at(0).stream, now_);
  EXPECT_TRUE(Take<CallPeer>().empty());  // it holds nothing
  EXPECT_TRUE(core_->Idle());
}

TEST_F(PrefillWorkerCoreTest, RefusesACapabilityThatDoesNotFit) {
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

TEST_F(PrefillWorkerCoreTest, RenewsAReservationWhileItStreams) {
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

class ImpatientPrefillWorkerCoreTest : public WorkerCoreTest {
 protected:
  ImpatientPrefillWorkerCoreTest()
      : WorkerCoreTest({.transfer_timeout = seconds(8)}, wire::ROLE_PREFILL) {}
};

TEST_F(ImpatientPrefillWorkerCoreTest, ATransferThatIsNeverAcknowledgedFails) {
  OpenSession();
  Submit("a", 1, 4, 5, true);
  RunAll();
  core_->OnPeerReply(TakeCall(), PeerResponse(Reserved(1)), now_);
  for (int second = 0; second < 8; ++second) {
    EXPECT_FALSE(TakeFailure().has_value());
    Advance(seconds(1));
    for (const CallPeer& renewal : Take<CallPeer>())
      core_->OnPeerReply(renewal.call, PeerResponse(Reserved(1)), now_);
  }
  const auto failure = TakeFailure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind(), Failure::KIND_PEER);
  EXPECT_THAT(failure->message(),
              ::testing::HasSubstr("0 of 3 slices acknowledged"));
}

TEST_F(PrefillWorkerCoreTest, AFailedTransferEndsTheAttempt) {
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

TEST_F(PrefillWorkerCoreTest,
       ADeadlineWhileACallIsDueToBeRepeatedStillCleansUp) {
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

TEST_F(PrefillWorkerCoreTest, ACallThatFailsAfterTheEndIsFollowedByTheAbort) {
  OpenSession();
  Submit("a", 1, 4, 5, true);
  const PeerCallId reserve = TakeCall();
  RunAll();
  Cancel("a", 1);
  const StreamId stream = Take<CloseStream>().at(0).stream;
  core_->OnPeerReply(reserve, Unavailable("lost"), now_);
  EXPECT_TRUE(Take<CallPeer>().empty());  // until memory is not read any more
  core_->OnStreamClosed(stream, now_);
  const PeerCallId abort = TakeCall();
  ASSERT_TRUE(LastCallIs<wire::AbortRequest>());
  core_->OnPeerReply(abort, Unavailable("lost"), now_);
  Advance(milliseconds(50));
  TakeCall();
  EXPECT_TRUE(LastCallIs<wire::AbortRequest>());
}

TEST_F(PrefillWorkerCoreTest, AFirstTokenThatIsTheLastIsNotHandedOver) {
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

}  // namespace
}  // namespace tidepool::worker
