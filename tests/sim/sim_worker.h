// A worker process of the simulation: the shell around WorkerCore, with
// simulated memory instead of a messenger and a model.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "dataplane/engine/engine_core.h"
#include "dataplane/worker/worker_core.h"
#include "tests/fakes/fake_model.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/sim_network.h"

namespace tidepool::sim {

struct SimWorkerConfig {
  std::string name, address;
  uint64_t incarnation = 0;
  wire::Role role = wire::ROLE_DECODE;
  fakes::FakeModelConfig model;
  engine::EngineConfig engine;
  worker::WorkerCoreConfig core;  // without its description
  Duration layer_time = std::chrono::microseconds(300);
  double step_error = 0;  // probability
};

class SimWorker : public Process {
 public:
  SimWorker(SimWorkerConfig config, EventQueue& queue, Random& random,
            SimNetwork& network, Report report);

  const SimWorkerConfig& config() const { return config_; }

  // ---- From the network ----
  void OnSessionMessage(const std::shared_ptr<Stream>& stream,
                        const wire::SessionRequest& message);
  void OnSessionClosed(uint64_t session);
  void OnPeerCall(worker::IncomingCallId call,
                  const worker::PeerRequest& request);
  void OnPeerReply(worker::PeerCallId call,
                   const StatusOr<worker::PeerResponse>& response);

  void Drain(Duration timeout);
  void SetRole(const wire::SetRoleRequest& request);

  // Reads the slices as they are now; nullopt if cancelled.
  std::optional<std::vector<std::vector<uint64_t>>> ReadSlices(
      const worker::SliceSubmission& submission);
  // Errors as transfer::SliceResult.
  Status WriteSlices(const worker::SliceSubmission& submission,
                     const std::vector<std::vector<uint64_t>>& slices);
  void OnTransferDone(const worker::SliceSubmission& submission,
                      const Status& status,
                      const std::vector<std::vector<uint64_t>>& slices);

  // ---- Checks ----
  Status CheckInvariants() const { return engine_->CheckInvariants(); }
  // Errors name what is left though nothing runs.
  Status CheckQuiet() const;
  const worker::WorkerCore& core() const { return *core_; }
  engine::EngineStats engine_stats() const { return engine_->Stats(); }

 private:
  struct Grant {
    uint64_t capability_id = 0;
    std::vector<engine::PageId> pages;
    std::map<uint32_t, uint64_t> checksums;  // by extent
    // Revoked for new writes, though those under way may still land.
    bool revoking = false;
  };

  // Memory that a transfer touches must belong to the transfer's sequence.
  void CheckOwned(engine::SequenceId sequence,
                  std::span<const engine::PageId> pages, std::string_view what);
  // What the shell does after each input.
  void Settle();
  void Perform(const worker::WorkerEffect& effect);
  void RunStep(const worker::RunStep& step);
  void EndStep(const engine::StepPlan& plan);
  void SubmitAll(std::vector<worker::SliceSubmission>& submissions);
  void CloseStream(worker::StreamId stream);
  void GrantPages(const worker::GrantCapability& grant);
  void RevokePages(worker::GrantId grant);
  void Post(Duration delay, std::function<void()> run);
  void ScheduleTick();

  const SimWorkerConfig config_;
  EventQueue& queue_;
  Random& random_;
  SimNetwork& network_;
  Report report_;
  fakes::FakeRunner runner_;
  std::unique_ptr<engine::EngineCore> engine_;
  std::unique_ptr<worker::WorkerCore> core_;
  worker::SliceStreamer streamer_;
  engine::StepResult step_result_;

  std::map<uint64_t, std::shared_ptr<Stream>> sessions_;
  std::map<worker::GrantId, Grant> grants_;
  uint64_t next_capability_ = 1;
  std::set<worker::StreamId> closed_streams_;
  TimePoint tick_at_ = TimePoint::max();

  bool draining_ = false;
  // Of the last role that was taken.
  std::pair<uint64_t, uint64_t> epoch_;
  wire::Role role_;
};

}  // namespace tidepool::sim
