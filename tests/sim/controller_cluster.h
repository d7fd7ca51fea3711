// What surrounds a controller: the parts of Kubernetes that make pods of
// StatefulSets and Deployments, nodes that run them, and the workers and
// conductors inside.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/reconcilers/rebalancing/fleet.h"
#include "dataplane/base/random.h"
#include "tests/fakes/api_server.h"
#include "tests/sim/event_queue.h"

namespace tidepool::sim {

using Json = nlohmann::json;
using scheduling::WorkerRole;

inline constexpr char kModelSpace[] = "models";

// Of a pod, or the template of one.
uint32_t DevicesOf(const Json& pod);

struct RoleEpoch {
  uint64_t term = 0, sequence = 0;
  auto operator<=>(const RoleEpoch&) const = default;
};

// One start of a worker's process: a restart makes another, which knows
// nothing of what this one was told.
struct WorkerProcess {
  uint64_t incarnation = 0;
  WorkerRole role = WorkerRole::kDecode;
  std::optional<WorkerRole> target;
  RoleEpoch epoch;
  TimePoint switched_at;  // when what it still does in its old role has ended
};

struct ClusterPod {
  std::string name, uid, owner, node, ip, revision;
  bool is_conductor = false;
  WorkerRole own_role = WorkerRole::kDecode;
  std::string role_label;
  uint32_t devices = 0;
  uint32_t restarts = 0;
  bool terminating = false, finished = false;
  TimePoint made_at;
  // Set once it has a node: when its process is up, and when a terminating one
  // is gone.
  std::optional<TimePoint> up_at, gone_at;
  std::optional<WorkerProcess> process;
  TimePoint hidden_until;  // nobody reaches it
  bool crash_loops = false;
  std::string told;  // the status that was written last

  bool up() const { return process.has_value(); }
};

// What the clients of the fleet ask for, in instances' worth of work. Each
// ready instance of a role bears its part.
struct FleetDemand {
  double prefill = 0, decode = 0;
  // Not shared: what each instance has to do.
  bool per_instance = false;
};

// Externally synchronized. Its own writes meet no faults; it is slow, though,
// and by chance later than usual.
class ControllerCluster {
 public:
  ControllerCluster(fakes::ApiServer& server, EventQueue& queue, uint64_t seed,
                    Report report);
  ~ControllerCluster();

  // Half a second of everybody's work.
  void Step();
  // Reads what the watches tell.
  void Sync();

  void AddNode(uint32_t devices);
  // Its pods are not ready any more, and later terminating; they go when it is
  // back.
  void LoseNode(Duration lost_for);
  // Nothing new finds a place meanwhile.
  void Cordon(Duration cordoned_for);
  void StartSlowly(Duration slow_for);
  // Of the switches of the one worker: never before `until`, or at once.
  void SlowFlips(Duration slow_for, Duration each);
  // `pick` chooses among what there is.
  void HideWorker(uint64_t pick, Duration hidden_for);
  void CrashWorker(uint64_t pick, bool in_a_loop);
  void CrashConductor(uint64_t pick);
  void EvictPod(uint64_t pick);
  void Heal();  // all of the above is over

  // Carried for a while by a network that loses some; refused as the workers'
  // protocol says.
  void Send(const reconcilers::RoleRequest& request, Duration delay);
  // What one conductor says of all workers; nullopt if it is not up.
  std::optional<reconcilers::ConductorSeen> ReportOf(
      const std::string& conductor_uid) const;

  void set_demand(const FleetDemand& demand) { demand_ = demand; }
  const FleetDemand& demand() const { return demand_; }
  const std::map<std::string, ClusterPod>& pods() const { return pods_; }
  const std::map<std::string, Json>& sets() const { return sets_; }
  // Pods that a worker process may run in: bound to a node that is there.
  bool HasUnschedulable() const;
  uint64_t flips() const { return flips_; }
  // Whether a flip may take away the last instance of a role: its order came
  // from the user.
  void set_all_return(bool all_return) { all_return_ = all_return; }

 private:
  struct Node {
    std::string name;
    uint32_t devices = 0;
    std::optional<TimePoint> lost_until;
    TimePoint lost_at;
  };

  void NotePod(const kube::WatchEvent& event);
  void StepSet(const Json& set);
  void StepDeployment(const Json& deployment);
  void MakePod(const Json& owner, const std::string& name,
               const std::string& revision);
  void SetStatus(const kube::ResourceType& type, const Json& object,
                 const Json& status);
  void Schedule(ClusterPod& pod);
  void RunPod(ClusterPod& pod);
  std::string FreeAddress() const;
  void StartProcess(ClusterPod& pod);
  void EndPod(ClusterPod& pod);
  void TellStatus(ClusterPod& pod);
  void Receive(const reconcilers::RoleRequest& request);
  void CheckLast(const ClusterPod& pod, WorkerRole left);
  void NoteReady();
  Node* NodeOf(const ClusterPod& pod);
  ClusterPod* PickWorker(uint64_t pick);
  bool Serves(const ClusterPod& pod) const;
  bool Ready(const ClusterPod& pod) const;
  Duration Draw(int least_ms, int most_ms);
  TimePoint now() const { return queue_.now(); }

  fakes::ApiServer& server_;
  EventQueue& queue_;
  Random random_;
  const Report report_;
  std::unique_ptr<fakes::ApiServer::Stream> pod_watch_, set_watch_,
      deployment_watch_;
  std::map<std::string, ClusterPod> pods_;  // by name
  std::map<std::string, Json> sets_, deployments_;
  std::vector<Node> nodes_;
  TimePoint cordoned_until_, slow_start_until_, slow_flips_until_;
  Duration slow_flip_{};
  FleetDemand demand_;
  bool all_return_ = false;
  // When each pod, by uid, last was a ready instance of each role.
  std::map<std::string, std::map<WorkerRole, TimePoint>> ready_at_;
  std::map<WorkerRole, TimePoint> poolless_at_;  // when no pool last had it
  uint64_t starts_ = 0, flips_ = 0, conductors_ = 0;
};

}  // namespace tidepool::sim
