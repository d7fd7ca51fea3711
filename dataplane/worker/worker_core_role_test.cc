// Switches of role, and the hand-over at the end.
#include "dataplane/worker/worker_core_testing.h"

namespace tidepool::worker {
namespace {

using ::testing::HasSubstr;

wire::SetRoleRequest RoleRequest(wire::Role role, uint64_t term,
                                 uint64_t sequence,
                                 uint32_t drain_timeout_ms = 1000) {
  wire::SetRoleRequest request;
  request.set_role(role);
  request.mutable_epoch()->set_term(term);
  request.mutable_epoch()->set_sequence(sequence);
  request.set_incarnation(100);
  request.set_drain_timeout_ms(drain_timeout_ms);
  return request;
}

class WorkerRoleTest : public WorkerCoreTest {
 protected:
  StatusOr<wire::RoleState> SetRole(wire::Role role, uint64_t term,
                                    uint64_t sequence,
                                    uint32_t drain_timeout_ms = 1000) {
    return core_->SetRole(RoleRequest(role, term, sequence, drain_timeout_ms),
                          now_);
  }
  std::vector<wire::RoleState> TakeRoleStates() {
    std::vector<wire::RoleState> states;
    for (const SendToConductor& send : TakeMessages()) {
      if (send.message.has_role_state()) {
        states.push_back(send.message.role_state());
      }
      if (send.message.has_failure()) {
        failures_.push_back(send.message.failure());
      }
    }
    return states;
  }
};

TEST_F(WorkerRoleTest, AnIdleWorkerSwitchesAtOnceAndSaysSo) {
  OpenSession();
  TakeMessages();
  const auto state = SetRole(wire::ROLE_PREFILL, 3, 1);
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->role(), wire::ROLE_PREFILL);
  EXPECT_EQ(state->target(), wire::ROLE_UNSPECIFIED);
  const std::vector<wire::RoleState> told = TakeRoleStates();
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().role(), wire::ROLE_PREFILL);
  EXPECT_EQ(told.back().epoch().term(), 3u);
  EXPECT_EQ(core_->Describe().role(), wire::ROLE_PREFILL);
  EXPECT_EQ(core_->Describe().role_state().epoch().sequence(), 1u);
  EXPECT_EQ(core_->Stats().role_switches_total, 1u);
}

TEST_F(WorkerRoleTest, OldAndContradictingEpochsAreRefusedRepeatsAreNot) {
  ASSERT_TRUE(SetRole(wire::ROLE_PREFILL, 3, 5).ok());
  const Status older = SetRole(wire::ROLE_DECODE, 3, 4).status();
  EXPECT_EQ(older.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(older.message()), HasSubstr("3.4"));
  EXPECT_THAT(std::string(older.message()), HasSubstr("3.5"));
  EXPECT_FALSE(SetRole(wire::ROLE_DECODE, 2, 9).ok());
  EXPECT_FALSE(SetRole(wire::ROLE_DECODE, 3, 5).ok());
  EXPECT_TRUE(SetRole(wire::ROLE_PREFILL, 3, 5).ok());
  EXPECT_TRUE(SetRole(wire::ROLE_DECODE, 4, 0).ok());
  EXPECT_EQ(core_->Describe().role(), wire::ROLE_DECODE);
}

TEST_F(WorkerRoleTest, RefusesWhatItCannotDo) {
  EXPECT_EQ(SetRole(wire::ROLE_UNSPECIFIED, 1, 1).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(SetRole(wire::ROLE_PREFILL, 0, 1).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(SetRole(wire::ROLE_PREFILL, 1, 1, 100'000'000).status().code(),
            Code::kInvalidArgument);
  wire::SetRoleRequest other = RoleRequest(wire::ROLE_PREFILL, 1, 1);
  other.set_incarnation(99);
  EXPECT_EQ(core_->SetRole(other, now_).status().code(),
            Code::kFailedPrecondition);
  core_->Drain(seconds(1), now_);
  EXPECT_EQ(SetRole(wire::ROLE_PREFILL, 1, 1).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(core_->Describe().role(), wire::ROLE_DECODE);
}

TEST_F(WorkerRoleTest, WorkOfTheOldRoleEndsFirstAndNoMoreIsTaken) {
  OpenSession();
  Submit("a", 1, 5, 3);
  const auto state = SetRole(wire::ROLE_PREFILL, 1, 1);
  EXPECT_EQ(state->role(), wire::ROLE_DECODE);
  EXPECT_EQ(state->target(), wire::ROLE_PREFILL);
  Submit("b", 1, 5, 3);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_DRAINING);
  Submit("c", 1, 5, 3, true);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_DRAINING);
  Reserve("d", 1);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kResourceExhausted);
  RunAll();
  EXPECT_EQ(TakeOutputs().size(), 3u);
  EXPECT_EQ(core_->Describe().role(), wire::ROLE_PREFILL);
  Submit("e", 1, 4, 5, true);
  RunAll();
  EXPECT_EQ(Take<CallPeer>().size(), 1u);
}

TEST_F(WorkerRoleTest, WhatIsNotDoneInTimeIsHandedBackAndTheCacheIsKept) {
  OpenSession();
  Submit("a", 1, 17, 40);
  Step();
  Step();
  Step();
  Step();
  ASSERT_TRUE(SetRole(wire::ROLE_PREFILL, 1, 1).ok());
  EXPECT_LE(core_->NextDeadline(), now_ + seconds(1));
  const int32_t cached = engine_->Stats().pages_total;
  Advance(milliseconds(1001));
  const std::vector<wire::RoleState> told = TakeRoleStates();
  EXPECT_EQ(told.back().role(), wire::ROLE_PREFILL);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_DRAINING);
  EXPECT_EQ(core_->Stats().handed_back_total, 1u);
  RunAll();
  EXPECT_TRUE(core_->Idle());
  EXPECT_GT(engine_->Stats().pages_cached, 0);
  EXPECT_EQ(engine_->Stats().pages_total, cached);
}

TEST_F(WorkerRoleTest, GrantedReservationsAreHonouredUntilTheTimeout) {
  OpenSession();
  Reserve("a", 1);
  const GrantId grant = AnswerGrant();
  EXPECT_TRUE(TakeReplyStatus().ok());
  Reserve("b", 1);
  const GrantId late = AnswerGrant();
  EXPECT_TRUE(TakeReplyStatus().ok());
  ASSERT_TRUE(SetRole(wire::ROLE_PREFILL, 1, 1).ok());
  Reserve("a", 1);  // a renewal
  EXPECT_TRUE(TakeReplyStatus().ok());
  Commit("a", 1, grant);
  core_->OnRevoked(grant, {.extents = 9, .complete = true, .digest = 42}, now_);
  EXPECT_TRUE(TakeReplyStatus().ok());
  RunAll();
  EXPECT_EQ(core_->Describe().role(), wire::ROLE_DECODE);  // b holds it up
  TakeMessages();
  Take<RevokeCapability>();
  Advance(milliseconds(1001));
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_DRAINING);
  EXPECT_EQ(core_->Describe().role(), wire::ROLE_PREFILL);
  ASSERT_EQ(Take<RevokeCapability>().size(), 1u);
  // The prefill worker is told what no failure is.
  Commit("b", 1, late);
  EXPECT_EQ(TakeReplyStatus().code(), Code::kResourceExhausted);
  EXPECT_FALSE(core_->Idle());  // its memory may still be written
  core_->OnRevoked(late, {}, now_);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(WorkerRoleTest, TheCurrentRoleEndsASwitchUnderWay) {
  OpenSession();
  Submit("a", 1, 5, 3);
  ASSERT_TRUE(SetRole(wire::ROLE_PREFILL, 1, 1).ok());
  const auto state = SetRole(wire::ROLE_DECODE, 1, 2);
  EXPECT_EQ(state->target(), wire::ROLE_UNSPECIFIED);
  Submit("b", 1, 5, 3);
  Advance(milliseconds(1001));
  RunAll();
  EXPECT_EQ(TakeOutputs().size(), 6u);
  EXPECT_EQ(core_->Describe().role(), wire::ROLE_DECODE);
  EXPECT_EQ(core_->Stats().role_switches_total, 0u);
}

TEST_F(WorkerRoleTest, AProcessThatEndsHandsBackWhatIsNotDoneInTime) {
  OpenSession();
  Submit("a", 1, 5, 40);
  Step();
  core_->Drain(seconds(2), now_);
  Step();
  EXPECT_FALSE(TakeFailure().has_value());
  Advance(milliseconds(2001));
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_DRAINING);
  RunAll();
  EXPECT_TRUE(core_->Idle());
}

TEST_F(PrefillWorkerCoreTest, ASwitchEndsHandoversAtTheTimeoutAndTellsPeers) {
  OpenSession();
  Submit("a", 1, 4, 5, true);
  RunAll();
  core_->OnPeerReply(TakeCall(), PeerResponse(Reserved(1)), now_);
  ASSERT_TRUE(
      core_->SetRole(RoleRequest(wire::ROLE_DECODE, 1, 1, 500), now_).ok());
  EXPECT_EQ(core_->Describe().role(), wire::ROLE_PREFILL);
  Advance(milliseconds(501));
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_DRAINING);
  // The new role does not wait for the clean-up.
  EXPECT_EQ(core_->Describe().role(), wire::ROLE_DECODE);
  core_->OnStreamClosed(Take<CloseStream>().at(0).stream, now_);
  const PeerCallId abort = TakeCall();
  ASSERT_TRUE(LastCallIs<wire::AbortRequest>());
  core_->OnPeerReply(abort, PeerResponse(wire::AbortResponse()), now_);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(PrefillWorkerCoreTest, ACommitRefusedForARoleIsNoFailureOfThePeer) {
  OpenSession();
  Submit("a", 1, 4, 5, true);
  RunAll();
  core_->OnPeerReply(TakeCall(), PeerResponse(Reserved(1)), now_);
  const StreamId stream = Take<OpenStream>().at(0).target->stream;
  Acknowledge(stream, 0, {1, 2, 3});
  const PeerCallId commit = TakeCall();
  ASSERT_TRUE(LastCallIs<wire::CommitRequest>());
  core_->OnPeerReply(commit, ResourceExhausted("handed back"), now_);
  EXPECT_EQ(TakeFailure()->kind(), Failure::KIND_PEER_OVERLOADED);
}

TEST_F(PrefillWorkerCoreTest, TellsHowFastItPrefills) {
  OpenSession();
  Submit("a", 1, 8, 5, true);
  now_ += milliseconds(100);
  RunAll();
  Advance(milliseconds(200));
  double speed = 0;
  for (const SendToConductor& send : TakeMessages()) {
    if (send.message.has_load()) {
      speed = send.message.load().prefill_tokens_per_second();
    }
  }
  EXPECT_DOUBLE_EQ(speed, 80);  // 8 tokens in 0.1 s
}

}  // namespace
}  // namespace tidepool::worker
