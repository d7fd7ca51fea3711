// One run of a fleet under two controllers, drawn from a seed, and what must
// hold in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/random.h"
#include "tests/fakes/api_server.h"
#include "tests/sim/controller_audit.h"
#include "tests/sim/controller_cluster.h"
#include "tests/sim/controller_process.h"
#include "tests/sim/event_queue.h"

namespace tidepool::sim {

struct ControllerResult {
  std::string error;               // the first; "" if all held
  std::string description;         // of the run
  uint64_t flips = 0, scales = 0;  // moves begun
  uint64_t flipped = 0;            // switches that workers ended
  uint64_t terms = 0, deaths = 0, freezes = 0, faults = 0, wishes = 0;
  uint64_t writes = 0;
  double converged_seconds = 0;  // after the last fault

  uint64_t moves() const { return flips + scales; }
};

// A family of two to four pools within a budget, whose load shifts; faults and
// users interfere for a while, then all is left alone. Checked throughout:
//   - the devices that pods hold or StatefulSets were told to make never exceed
//     the budget, and what exceeds one that was cut only goes;
//   - no controller writes to a spec;
//   - plans are within minimum and maximum;
//   - no epoch is used twice, no worker follows an older one;
//   - no flip takes away the last ready instance of a role;
//   - status remembers ten moves at most.
// In the end: roles are what status says, StatefulSets and pods what was
// planned, nothing is under way, and then nothing but the Lease is written.
// Nothing is held for good, either: when one role is pressed and then the
// other, whatever can be lent is, and what there is room for grows.
class ControllerScenario {
 public:
  explicit ControllerScenario(uint64_t seed);
  ~ControllerScenario();

  // Once.
  ControllerResult Run();

 private:
  struct Slot {
    std::string name;
    std::unique_ptr<ControllerProcess> process;  // null while it is down
    TimePoint starts_at;
  };
  struct PoolPlan {
    std::string name;
    bool is_prefill = false;
    uint32_t devices = 1;
    int64_t replicas = 1, min = 1, max = 1;
    bool is_deleted = false;
  };

  void Make();
  void DrawPool(bool is_prefill, const std::string& name);
  void MakePool(PoolPlan& pool);
  void RunUntil(TimePoint end);
  void Every(Duration interval, std::function<void()> act);
  void StepControllers();
  void StartController(Slot& slot);
  void StopController(Slot& slot);
  void BeforeWrite(Slot& slot);
  Slot& Leader();
  Slot& Any();

  void Fault();
  void FaultOfApi(Slot& slot);
  void FaultOfController(Slot& slot);
  void FaultOfFleet();
  void Wish();
  void WishOfFamily();
  void WishOfPool(PoolPlan& pool);
  void DeletePool(PoolPlan& pool);
  void ResizePods(const PoolPlan& pool);
  void ShiftLoad();
  void PatchFamily(Json spec);
  void WritePool(const PoolPlan& pool);

  void EndFaults();
  std::string NotConverged();
  std::string NotConverged(const std::string& name,
                           const ControllerAudit::Pool& pool);
  uint64_t Writes() const;
  void CheckIdle();
  // What the planner could still do for a role that is short of instances; ""
  // if nothing.
  std::string LeftToDo(WorkerRole hot) const;
  void CheckResponds(WorkerRole hot);
  void Fail(const std::string& what);

  TimePoint now() const { return queue_.now(); }
  Duration Draw(double least_s, double most_s);
  bool failed() const { return !result_.error.empty(); }

  const uint64_t seed_;
  Random random_;
  EventQueue queue_;
  QueueClock clock_;
  fakes::ApiServer server_;
  std::unique_ptr<ControllerCluster> cluster_;
  std::unique_ptr<ControllerAudit> audit_;
  Slot slots_[2];
  std::vector<PoolPlan> pools_;
  int64_t budget_ = 0;
  bool is_calm_ = false;  // no more faults and wishes
  bool is_nested_ = false;
  uint64_t freeze_at_write_ = 0;  // of the leader, counted down
  Duration freeze_for_{};
  TimePoint off_until_;
  uint64_t starts_ = 0, writes_of_dead_ = 0;
  ControllerResult result_;
};

}  // namespace tidepool::sim
