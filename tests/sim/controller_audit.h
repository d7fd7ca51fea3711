// Watches over what controllers do: reads every change of the API server and
// says what must never be.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/fakes/api_server.h"
#include "tests/sim/event_queue.h"

namespace tidepool::sim {

// Externally synchronized.
class ControllerAudit {
 public:
  using Json = nlohmann::json;

  // Of a pool, as the API server has it.
  struct Pool {
    const kube::ResourceType* type = nullptr;
    Json spec, status;
    uint32_t devices = 1;  // per replica

    bool is_prefill() const;
    int64_t replicas() const { return spec.value("replicas", int64_t{1}); }
    // Replicas that are to be.
    int64_t Target(bool is_planned) const;
  };

  ControllerAudit(fakes::ApiServer& server, const EventQueue& queue,
                  Report report);
  ~ControllerAudit();

  // After every write.
  void Check();
  // A call that a controller makes.
  void CheckWrite(const kube::ResourceType& type, std::string_view subresource);

  const std::map<std::string, Pool>& pools() const { return pools_; }
  const Json& family() const { return family_; }
  std::optional<int64_t> budget() const;
  // What all pools are to have is more than the budget.
  bool is_starved() const;
  bool is_reactive() const;
  // Devices of all pods that StatefulSets were told to make, there or not, each
  // as large as it is or as the one that comes after it, and of those beyond
  // that are not gone yet.
  int64_t held() const;

  // For people: pods and replicas of each pool.
  std::string Holdings() const;

  // Role changes and changes of planned replicas that were written down.
  uint64_t flips() const { return flips_; }
  uint64_t scales() const { return scales_; }

 private:
  struct Watched;

  void Take(const Watched& watched, const kube::WatchEvent& event);
  void TakePool(const kube::ResourceType& type, const Json& object);
  void CheckPlan(const std::string& name, const Json& before,
                 const Pool& after);
  void CountMoves(const Pool& before, const Pool& after);
  void NoteLeast();
  void CheckBudget();

  const EventQueue& queue_;
  const Report report_;
  std::vector<std::unique_ptr<Watched>> watched_;
  std::map<std::string, Pool> pools_;
  struct Told {
    int64_t replicas = 0, devices = 1;
  };
  std::map<std::string, Told> sets_;
  struct Pod {
    std::string pool;
    int64_t devices = 1;
  };
  std::map<std::string, Pod> pods_;
  Json family_;
  // The most that each pool's minimum ever took, and the smallest budget.
  std::map<std::string, int64_t> least_devices_;
  int64_t least_budget_ = INT64_MAX;
  std::map<int64_t, TimePoint> budgets_;  // and when each last was in force
  int64_t last_held_ = 0;
  uint64_t flips_ = 0, scales_ = 0;
};

}  // namespace tidepool::sim
