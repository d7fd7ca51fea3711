// A controller, an API server in memory, and what stands for kubelets and the
// controllers of Kubernetes, all in one thread and virtual time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/kube/client.h"
#include "controller/kube/event_recorder.h"
#include "controller/reconcilers/cluster_cache.h"
#include "controller/reconcilers/family_reconciler.h"
#include "controller/reconcilers/model_catalog.h"
#include "dataplane/base/clock.h"
#include "tests/fakes/api_server.h"
#include "tests/fakes/faulty_client.h"
#include "tests/fakes/informer_pump.h"

namespace tidepool::reconcilers {

inline constexpr char kTestSpace[] = "models";

class FamilyWorld {
 public:
  FamilyWorld();
  ~FamilyWorld();

  // What a user does.
  void Create(const kube::ResourceType& type, const std::string& name,
              Json spec);
  void PatchSpec(const kube::ResourceType& type, const std::string& name,
                 Json patch);
  void Delete(const kube::ResourceType& type, const std::string& name);
  // The three manifests of a small fleet called `demo`.
  void CreateDemo(int prefill_replicas, int decode_replicas);

  // Null if it is not there.
  Json Get(const kube::ResourceType& type, const std::string& name);
  std::vector<std::string> Names(const kube::ResourceType& type);
  Json Condition(const kube::ResourceType& type, const std::string& name,
                 const std::string& condition);

  // Informers and reconciler, until nothing changes; false after too many
  // rounds.
  bool Settle();
  // Settle in turns with StatefulSets, Deployments and kubelets.
  bool Run();
  // What those do, once. True if anything changed.
  bool StepWorkloads();
  // Pods that never get ready.
  void Break(const std::string& pod) { broken_.insert(pod); }
  void Mend(const std::string& pod) { broken_.erase(pod); }
  // Every family, as the manager does from time to time.
  void ReconcileAll();
  // The process starts anew: nothing is remembered.
  void Restart();

  // What the conductors of the fleet say, and what the workers were asked.
  class Fleet final : public FleetSource, public RoleSetter {
   public:
    void Follow(const kube::ObjectKey&,
                const std::vector<ConductorAddress>& conductors,
                bool closely) override;
    FleetSnapshot Snapshot(const kube::ObjectKey&) const override;
    void SetRole(const RoleRequest& request) override;

    bool is_reachable = true;
    // Of the next report, by pod; names and addresses are filled in.
    std::map<std::string, WorkerSeen> workers;
    ConductorSeen report;
    std::vector<RoleRequest> asked;
    bool ignores_requests = false;
    bool follows_closely = false;
  };
  // Reports of now, of the pods there are.
  void Report();
  std::string RoleLabel(const std::string& pod);

  Fleet fleet;
  std::optional<uint64_t> term = 1;
  ManualClock clock;
  fakes::ApiServer server;
  fakes::FaultyClient client;
  std::vector<Status> errors;       // of Reconcile
  std::optional<Duration> requeue;  // as the last one asked

 private:
  struct Process;
  bool StepStatefulSet(const Json& set);
  bool StepDeployment(const Json& deployment);
  bool StepPod(const Json& set, const std::string& revision, int ordinal);

  std::unique_ptr<Process> process_;
  std::set<std::string> broken_;
  uint64_t starts_ = 0;
};

}  // namespace tidepool::reconcilers
