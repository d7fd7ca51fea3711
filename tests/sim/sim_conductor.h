// A conductor process of the simulation, with its clients: every token and
// every end is checked as it comes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/conductor/conductor_core.h"
#include "dataplane/engine/sampling_params.h"
#include "tests/fakes/fake_model.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/sim_network.h"

namespace tidepool::sim {

// One client's view of its request.
struct ClientView {
  std::string id;
  std::vector<int32_t> prompt;
  // One for each set of weights in the fleet; those that still can be meant.
  std::vector<fakes::OracleOutput> expected;
  bool short_timeout = false;
  TimePoint deadline{}, ended{};
  std::vector<int32_t> received;
  bool cancelled = false;  // by the client
  bool abandoned = false;  // its conductor died
  bool finish_reason_seen = false;
  int ends = 0;
  conductor::EndReason reason{};
  std::string message;
  std::string journal;
  uint32_t attempts = 0;
};

class SimConductor : public Process {
 public:
  SimConductor(conductor::ConductorCoreConfig config, EventQueue& queue,
               SimNetwork& network, Report report);

  void AddWorker(const std::string& name, const std::string& address);

  // ---- From the network ----
  void OnConnected(const std::shared_ptr<Stream>& stream);
  void OnDisconnected(uint64_t connection, const Status& reason);
  void OnMessage(const std::shared_ptr<Stream>& stream,
                 const wire::SessionResponse& message);

  // ---- Clients ----
  // False if refused at once.
  bool Submit(const std::shared_ptr<ClientView>& client,
              const engine::SamplingParams& sampling, const std::string& salt,
              Duration timeout);
  void Cancel(const std::string& id);
  // Of all requests that have not ended.
  void AbandonClients();

  const conductor::ConductorCore& core() const { return core_; }

 private:
  void Settle();
  void Perform(const conductor::ConductorEffect& effect);
  void OnOutput(const conductor::EmitOutput& emit);
  void OnEnd(const conductor::EndRequest& end);
  void ScheduleTick();

  EventQueue& queue_;
  SimNetwork& network_;
  Report report_;
  scheduling::LeastLoadedPlacement placement_;
  conductor::ConductorCore core_;
  std::map<uint64_t, std::shared_ptr<Stream>> streams_;  // by connection
  std::map<std::string, std::shared_ptr<ClientView>> clients_;
  TimePoint tick_at_ = TimePoint::max();
};

}  // namespace tidepool::sim
