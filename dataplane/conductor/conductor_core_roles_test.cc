// Workers that change their role, drain, and are found by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/conductor/conductor_core_test_util.h"

namespace tidepool::conductor {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using Failure = wire::RequestFailure;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConductorRolesTest : public ConductorCoreTest {
 protected:
  void SetRole(Peer& peer, wire::Role role,
               wire::Role target = wire::ROLE_UNSPECIFIED) {
    wire::SessionResponse message;
    message.mutable_role_state()->set_role(role);
    message.mutable_role_state()->set_target(target);
    message.mutable_role_state()->mutable_epoch()->set_term(1);
    Send(peer, message);
  }
  // What a worker is called that was added without a name, and said `name`.
  std::string NameAfterHello(const std::string& address,
                             const std::string& name) {
    Peer peer{.id = *core_->AddWorker("", address, now_)};
    peer.connection = Take<ConnectWorker>().at(0).connection;
    core_->OnConnected(peer.connection, now_);
    Take<SendToWorker>();
    wire::SessionResponse hello;
    auto& description = *hello.mutable_hello()->mutable_description();
    description.set_incarnation(1);
    description.set_role(wire::ROLE_DECODE);
    description.set_max_model_len(1000);
    description.set_max_num_seqs(8);
    description.mutable_identity()->set_page_tokens(16);
    description.set_name(name);
    Send(peer, hello);
    return core_->Workers().back().name;
  }
};

TEST_F(ConductorRolesTest, AWorkerThatSwitchesGetsNothingUntilItServes) {
  Peer first = AddWorker("first", wire::ROLE_DECODE);
  Peer second = AddWorker("second", wire::ROLE_DECODE);
  SetRole(first, wire::ROLE_DECODE, wire::ROLE_PREFILL);
  EXPECT_FALSE(core_->Workers().at(0).ready);
  ASSERT_TRUE(Submit("a").ok());
  Sent sent = TakeSubmits().at(0);
  EXPECT_EQ(sent.connection, second.connection);
  EXPECT_FALSE(sent.submit.has_decode_peer());
  SetRole(first, wire::ROLE_PREFILL);
  ASSERT_TRUE(Submit("b").ok());
  sent = TakeSubmits().at(0);
  EXPECT_EQ(sent.connection, first.connection);
  EXPECT_EQ(sent.submit.decode_peer().control_address(), "second:1");
}

TEST_F(ConductorRolesTest, WaitingRequestsGoToANewDecodeWorkerAtOnce) {
  Peer worker = AddWorker("w", wire::ROLE_PREFILL);
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_THAT(TakeSubmits(), IsEmpty());
  SetRole(worker, wire::ROLE_DECODE);
  EXPECT_EQ(TakeSubmits().size(), 1u);
}

TEST_F(ConductorRolesTest, ARoleThatIsNoneEndsTheSession) {
  Peer worker = AddWorker("w", wire::ROLE_DECODE);
  SetRole(worker, wire::ROLE_UNSPECIFIED);
  EXPECT_EQ(Take<DisconnectWorker>().size(), 1u);
}

TEST_F(ConductorRolesTest, WhatIsHandedBackGoesOnElsewhereAtOnce) {
  Peer first = AddWorker("first", wire::ROLE_DECODE);
  Peer second = AddWorker("second", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(TakeSubmits().at(0).connection, first.connection);
  Output(first, "a", 1, 0, {1, 2});
  SetRole(first, wire::ROLE_DECODE, wire::ROLE_PREFILL);
  Fail(first, "a", 1, Failure::KIND_DRAINING);
  const Sent sent = TakeSubmits().at(0);
  EXPECT_EQ(sent.connection, second.connection);
  EXPECT_EQ(sent.submit.request().tokens_size(), 12);
  Output(second, "a", 2, 2, {3}, wire::FINISH_REASON_STOP);
  EXPECT_THAT(TakeTokens(), ElementsAre(1, 2, 3));
  EXPECT_EQ(TakeEnd(), EndReason::kFinished);
  EXPECT_EQ(end_.record.hand_backs, 1u);
  EXPECT_EQ(core_->Stats().hand_backs, 1u);
  EXPECT_EQ(core_->Stats().retries, 0u);
}

TEST_F(ConductorRolesTest, HandBacksAreNoFailuresHoweverMany) {
  Peer peers[] = {AddWorker("d0", wire::ROLE_DECODE),
                  AddWorker("d1", wire::ROLE_DECODE)};
  ASSERT_TRUE(Submit("a").ok());
  for (uint32_t attempt = 1; attempt <= 100; ++attempt) {
    std::vector<Sent> sent = TakeSubmits();
    if (sent.empty()) {
      Advance(seconds(2));  // a backoff, since no token came meanwhile
      for (Peer& peer : peers) Load(peer);
      sent = TakeSubmits();
    }
    ASSERT_EQ(sent.size(), 1u);
    Fail(sent[0].connection == peers[0].connection ? peers[0] : peers[1], "a",
         attempt, Failure::KIND_DRAINING);
  }
  EXPECT_THAT(Take<EndRequest>(), IsEmpty());
  EXPECT_LE(core_->Find("a")->attempts.size(), 33u);
  EXPECT_EQ(core_->Find("a")->attempts.front().attempt, 1u);
  EXPECT_EQ(core_->Find("a")->hand_backs, 100u);
}

TEST_F(ConductorRolesTest, AHandoverLostToASwitchIsNoFailureOfThePeer) {
  Peer prefill = AddWorker("prefill", wire::ROLE_PREFILL);
  Peer first = AddWorker("first", wire::ROLE_DECODE);
  AddWorker("second", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(TakeSubmits().at(0).submit.decode_peer().control_address(),
            "first:1");
  SetRole(first, wire::ROLE_DECODE, wire::ROLE_PREFILL);
  Fail(prefill, "a", 1, Failure::KIND_PEER);
  const Sent sent = TakeSubmits().at(0);
  EXPECT_EQ(sent.submit.decode_peer().control_address(), "second:1");
  EXPECT_EQ(core_->Stats().hand_backs, 1u);
  EXPECT_EQ(core_->Stats().retries, 0u);
}

TEST_F(ConductorRolesTest, WhatWasHandedBackWaitsForRoomUntilItsOwnTimeout) {
  Peer worker = AddWorker("w", wire::ROLE_DECODE);
  ASSERT_TRUE(Submit("a", 10, minutes(20)).ok());
  TakeSubmits();
  Output(worker, "a", 1, 0, {1});
  Load(worker, 8);  // the others' requests fill it
  Fail(worker, "a", 1, Failure::KIND_DRAINING);
  ASSERT_TRUE(Submit("b", 10, minutes(20)).ok());
  for (int i = 0; i < 400; ++i) {
    Advance(seconds(1));
    Load(worker, 8);
  }
  const std::vector<EndRequest> ends = Take<EndRequest>();
  ASSERT_EQ(ends.size(), 1u);  // b has waited long enough
  EXPECT_EQ(ends[0].request_id, "b");
  EXPECT_EQ(ends[0].reason, EndReason::kNoRoom);
  Load(worker, 0);
  EXPECT_EQ(TakeSubmits().size(), 1u);
}

TEST_F(ConductorRolesTest, ASwitchOfTheLastDecodeWorkerShortensPatience) {
  Peer worker = AddWorker("w", wire::ROLE_DECODE);
  Load(worker, 8);
  ASSERT_TRUE(Submit("a").ok());
  SetRole(worker, wire::ROLE_PREFILL);
  for (int i = 0; i < 31; ++i) {
    Advance(seconds(1));
    Load(worker);
  }
  EXPECT_EQ(TakeEnd(), EndReason::kNoReadyWorker);
}

TEST_F(ConductorRolesTest, AWorkerWithoutANameTakesItsOwnIfItMay) {
  EXPECT_EQ(NameAfterHello("10.0.0.1:7000", "pool-0"), "pool-0");
  EXPECT_EQ(NameAfterHello("10.0.0.2:7000", "pool-0"),
            "10.0.0.2:7000");  // taken
  EXPECT_EQ(NameAfterHello("10.0.0.3:7000", "a \"b\""), "10.0.0.3:7000");
  EXPECT_EQ(NameAfterHello("10.0.0.4:7000", ""), "10.0.0.4:7000");
}

TEST_F(ConductorRolesTest, APodThatCameBackElsewhereHasItsNameAgain) {
  EXPECT_EQ(NameAfterHello("10.0.0.1:7000", "pool-0"), "pool-0");
  Advance(minutes(1));  // it is silent
  EXPECT_EQ(NameAfterHello("10.0.0.2:7000", "pool-0"), "pool-0");
  EXPECT_EQ(core_->Workers().front().name, "10.0.0.1:7000");
}

}  // namespace
}  // namespace tidepool::conductor
