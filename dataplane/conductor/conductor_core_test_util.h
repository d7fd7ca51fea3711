// A ConductorCore between workers, a network and clients that the test plays.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dataplane/conductor/conductor_core.h"

namespace tidepool::conductor {

class ConductorCoreTest : public ::testing::Test {
 protected:
  explicit ConductorCoreTest(ConductorCoreConfig config = {}) {
    config.conductor_id = std::string("c");
    config.incarnation = 5;
    core_ = std::make_unique<ConductorCore>(std::move(config), placement_);
  }

  void Collect() {
    for (ConductorEffect& effect : core_->TakeEffects()) {
      effects_.push_back(std::move(effect));
    }
  }
  template <typename T>
  std::vector<T> Take() {
    Collect();
    std::vector<T> taken;
    std::erase_if(effects_, [&](ConductorEffect& effect) {
      if (!std::holds_alternative<T>(effect)) return false;
      taken.push_back(std::move(std::get<T>(effect)));
      return true;
    });
    return taken;
  }

  // ---- Workers ----
  struct Peer {
    WorkerId id = 0;
    ConnectionId connection = 0;
    uint64_t sequence = 1;
  };
  Peer AddWorker(const std::string& name, wire::Role role,
                 const std::string& model = "m") {
    Peer peer{.id = *core_->AddWorker(name, name + ":1", now_)};
    peer.connection = Take<ConnectWorker>().at(0).connection;
    Greet(peer, role, model);
    return peer;
  }
  void Greet(Peer& peer, wire::Role role, const std::string& model = "m",
             uint64_t incarnation = 100) {
    core_->OnConnected(peer.connection, now_);
    EXPECT_TRUE(Take<SendToWorker>().at(0).message.has_hello());
    wire::SessionResponse hello;
    wire::DescribeResponse& description =
        *hello.mutable_hello()->mutable_description();
    description.set_incarnation(incarnation);
    description.set_role(role);
    description.set_max_model_len(1000);
    description.set_max_num_seqs(8);
    description.set_transfer_address("transfer");
    description.mutable_identity()->set_page_tokens(16);
    description.mutable_identity()->set_model_digest(model);
    Send(peer, hello);
    Load(peer);
  }
  void Send(Peer& peer, wire::SessionResponse message) {
    message.set_sequence(peer.sequence++);
    core_->OnMessage(peer.connection, message, now_);
  }
  void Load(Peer& peer, uint32_t running = 0, bool draining = false) {
    wire::SessionResponse message;
    message.mutable_load()->set_pages_total(100);
    message.mutable_load()->set_pages_free(100);
    message.mutable_load()->set_running_requests(running);
    message.mutable_load()->set_draining(draining);
    Send(peer, message);
  }
  void Output(Peer& peer, const std::string& id, uint32_t attempt,
              uint32_t first_index, const std::vector<int32_t>& tokens,
              wire::FinishReason finish = wire::FINISH_REASON_UNSPECIFIED) {
    wire::SessionResponse message;
    wire::RequestOutput& output = *message.mutable_outputs()->add_outputs();
    output.set_request_id(id);
    output.set_attempt(attempt);
    output.set_first_index(first_index);
    output.mutable_tokens()->Add(tokens.begin(), tokens.end());
    output.set_finish_reason(finish);
    Send(peer, message);
  }
  void Fail(Peer& peer, const std::string& id, uint32_t attempt,
            wire::RequestFailure::Kind kind) {
    wire::SessionResponse message;
    message.mutable_failure()->set_request_id(id);
    message.mutable_failure()->set_attempt(attempt);
    message.mutable_failure()->set_kind(kind);
    message.mutable_failure()->set_message("why");
    Send(peer, message);
  }
  void HandOver(Peer& peer, const std::string& id, uint32_t attempt) {
    wire::SessionResponse message;
    message.mutable_handed_over()->set_request_id(id);
    message.mutable_handed_over()->set_attempt(attempt);
    message.mutable_handed_over()->set_transport("tcp");
    Send(peer, message);
  }

  // ---- Clients ----
  Status Submit(const std::string& id, int tokens = 10,
                Duration timeout = std::chrono::minutes(10)) {
    return core_->Submit({.id = id,
                          .prompt = std::vector<int32_t>(tokens, 7),
                          .timeout = timeout},
                         now_);
  }
  struct Sent {
    ConnectionId connection = 0;
    wire::SubmitRequest submit;
  };
  std::vector<Sent> TakeSubmits() {
    std::vector<Sent> submits;
    for (const SendToWorker& send : Take<SendToWorker>()) {
      if (send.message.has_submit()) {
        submits.push_back({send.connection, send.message.submit()});
      } else if (send.message.has_cancel()) {
        cancels_.push_back(fmt::format(
            "{}/{}@{}", send.message.cancel().header().request_id(),
            send.message.cancel().header().attempt(), send.connection));
      }
    }
    return submits;
  }
  std::vector<std::string> TakeCancels() {
    for (const Sent& sent : TakeSubmits()) ADD_FAILURE() << sent.connection;
    return std::exchange(cancels_, {});
  }
  static std::string CancelOf(const std::string& id, uint32_t attempt,
                              const Peer& peer) {
    return fmt::format("{}/{}@{}", id, attempt, peer.connection);
  }
  std::vector<int32_t> TakeTokens() {
    std::vector<int32_t> tokens;
    for (const EmitOutput& emit : Take<EmitOutput>()) {
      tokens.insert(tokens.end(), emit.output.tokens().begin(),
                    emit.output.tokens().end());
    }
    return tokens;
  }
  // The reason of the only end there is.
  EndReason TakeEnd() {
    std::vector<EndRequest> ends = Take<EndRequest>();
    EXPECT_EQ(ends.size(), 1u);
    if (ends.empty()) return EndReason::kShutdown;
    end_ = ends[0];
    return end_.reason;
  }
  void Advance(Duration by) {
    now_ += by;
    core_->Tick(now_);
  }
  // Time passes while the workers go on reporting.
  void Wait(Duration by, std::initializer_list<Peer*> peers) {
    for (const TimePoint end = now_ + by; now_ < end;) {
      Advance(std::chrono::seconds(1));
      for (Peer* peer : peers) Load(*peer);
    }
  }

  scheduling::LeastLoadedPlacement placement_;
  std::unique_ptr<ConductorCore> core_;
  TimePoint now_{std::chrono::seconds(1000)};
  std::vector<ConductorEffect> effects_;
  std::vector<std::string> cancels_;
  EndRequest end_;
};

}  // namespace tidepool::conductor
