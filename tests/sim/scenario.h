// One whole-system run, drawn from a seed: a fleet, its load, and everything
// that goes wrong.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/random.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/sim_conductor.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_worker.h"

namespace tidepool::sim {

struct ScenarioResult {
  std::string error;  // empty if all is well; the first thing that was wrong
  std::string description;
  bool calm = false;  // nothing was made to fail
  uint64_t events = 0;
  uint32_t requests = 0, finished = 0, cancelled = 0, abandoned = 0;
  uint32_t migrated = 0;  // finished after more than one attempt
  std::map<std::string, uint32_t> failed;  // by reason
  uint64_t handed_over = 0, preemptions = 0, prefix_hit_tokens = 0;
  uint64_t flips = 0;                     // of roles, carried out
  uint64_t handed_back = 0, retries = 0;  // as the conductors counted them
};

enum class ScenarioKind {
  kAll,    // whatever the seed draws
  kFlips,  // a larger fleet whose roles change all the time, and no fault
};

// Confined to one thread.
class Scenario {
 public:
  explicit Scenario(uint64_t seed, ScenarioKind kind = ScenarioKind::kAll);
  ScenarioResult Run();

 private:
  struct Node {  // an address, whatever process lives there
    SimWorkerConfig config;
    std::shared_ptr<SimWorker> process;
  };
  struct Replica {
    conductor::ConductorCoreConfig config;
    std::shared_ptr<SimConductor> process;
  };
  struct Leader {  // a planner that believes to be the only one
    uint64_t term = 0, sequence = 0;
  };

  // ---- Drawn from the seed ----
  void DrawModel();
  void DrawFleet();
  void DrawFaults();
  void DrawLoad();
  void DrawRequest(TimePoint at);
  void DrawFlips();
  NetworkConfig DrawNetwork();

  // ---- What happens ----
  void StartWorker(Node& node);
  void StartConductor(Replica& replica);
  void KillWorker(Node& node);
  void KillConductor(Replica& replica);
  void DrainWorker(Node& node);
  void Fault();
  void Submit(const std::shared_ptr<ClientView>& client,
              const engine::SamplingParams& sampling, const std::string& salt,
              Duration timeout);
  // No more faults; what is dead comes back.
  void Heal();

  // ---- Roles (scenario_flips.cc) ----
  // Every identity keeps a decode worker: whom planners never flip away.
  bool MayFlip(const Node& node) const;
  // Some leader, rightful or not, changes some role.
  void Flip();
  void Command(Leader& leader, Node& node, wire::Role role, Duration drain);
  // A last leader sets all roles to what they were, until they are.
  void RestoreRoles();
  void CheckRoles();

  void RunUntil(TimePoint end);
  bool AllEnded() const;
  void CheckEngines();
  void CheckClients();
  void CheckQuiet();
  void Fail(const std::string& error);
  void Count();

  uint64_t Between(uint64_t low, uint64_t high) {
    return low + random_.Below(high - low + 1);
  }
  Duration RandomDuration(Duration max) {
    return Duration(random_.Below(static_cast<uint64_t>(max.count()) + 1));
  }

  const ScenarioKind kind_;
  EventQueue queue_;
  Random random_;
  SimNetwork network_;
  ScenarioResult result_;

  fakes::FakeModelConfig model_;
  engine::EngineConfig engine_;
  std::vector<uint64_t> weights_;  // usually one; pools are never mixed up
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<std::shared_ptr<ClientView>> clients_;
  std::vector<std::vector<int32_t>> prefixes_;  // that prompts share
  uint64_t next_incarnation_ = 1, next_request_ = 1;
  Duration fault_pause_{};  // mean time between faults; 0: none
  Duration flip_pause_{};   // the same between flips
  uint64_t last_term_ = 0;
  std::vector<Leader> leaders_;
  bool healed_ = false;
};

}  // namespace tidepool::sim
