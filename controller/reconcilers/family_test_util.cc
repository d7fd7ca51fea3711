#include "controller/reconcilers/family_test_util.h"

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/names.h"
#include "dataplane/base/check.h"
#include "dataplane/base/digest.h"

namespace tidepool::reconcilers {
namespace {

constexpr int kRoundsMax = 500;

Json MustGet(StatusOr<Json> object) {
  CHECK(object.ok());
  return *std::move(object);
}

std::string RevisionOf(const Json& workload) {
  return workload["metadata"]["name"].get<std::string>() + "-" +
         Sha256Of(workload["spec"]["template"].dump()).Hex().substr(0, 8);
}

double UnixTimeOf(const Clock& clock) {
  return 1.8e9 + Seconds(clock.Now().time_since_epoch()).count();
}

}  // namespace

struct FamilyWorld::Process {
  explicit Process(FamilyWorld& world)
      : cache({.seed = 1}),
        events({.instance = "test", .seed = ++world.starts_}, world.client,
               world.clock, [] { return 0.0; }),
        keyring(world.client, world.clock,
                [&world] { return UnixTimeOf(world.clock); }),
        reconciler(
            {.version = "0.1.0",
             .image_repository = "localhost/tidepool",
             .space = "tidepool-system"},
            {.client = world.client,
             .cache = cache,
             .models = models,
             .fleet = world.fleet,
             .roles = world.fleet,
             .keyring = keyring,
             .events = events,
             .clock = world.clock,
             .unix_seconds = [&world] { return UnixTimeOf(world.clock); },
             .random = [this] { return random.Next(); },
             .term = [&world] { return world.term; }}),
        pump(world.client, world.clock) {
    cache.OnChange(
        [this](const kube::ObjectKey& family) { dirty.insert(family); });
    for (runtime::InformerBase* informer : cache.informers())
      pump.Add(*informer);
  }

  Random random{7};
  ClusterCache cache;
  LocalModelCatalog models;
  kube::EventRecorder events;
  Keyring keyring;
  FamilyReconciler reconciler;
  fakes::InformerPump pump;
  std::set<kube::ObjectKey> dirty;
};

FamilyWorld::FamilyWorld() : server({}, clock), client(server, 1) {
  clock.Advance(std::chrono::hours(1));
  Restart();
}

FamilyWorld::~FamilyWorld() = default;

void FamilyWorld::Restart() {
  process_.reset();
  process_ = std::make_unique<Process>(*this);
}

void FamilyWorld::Create(const kube::ResourceType& type,
                         const std::string& name, Json spec) {
  const Json object = {
      {"apiVersion", type.ApiVersion()},
      {"kind", type.kind},
      {"metadata", {{"name", name}, {"namespace", kTestSpace}}},
      {"spec", std::move(spec)}};
  CHECK(server.Create(type, kTestSpace, object).ok());
}

void FamilyWorld::PatchSpec(const kube::ResourceType& type,
                            const std::string& name, Json patch) {
  CHECK(server
            .Patch(type, {kTestSpace, name}, kube::PatchType::kMerge,
                   {{"spec", std::move(patch)}})
            .ok());
}

void FamilyWorld::Delete(const kube::ResourceType& type,
                         const std::string& name) {
  CHECK(server.Delete(type, {kTestSpace, name}).ok());
}

void FamilyWorld::CreateDemo(int prefill_replicas, int decode_replicas) {
  Create(kube::kKVCachePool, "demo", {{"model", {{"uri", "demo"}}}});
  if (prefill_replicas > 0)
    Create(kube::kPrefillPool, "demo-prefill",
           {{"kvCachePoolRef", {{"name", "demo"}}},
            {"replicas", prefill_replicas}});
  Create(
      kube::kDecodePool, "demo-decode",
      {{"kvCachePoolRef", {{"name", "demo"}}}, {"replicas", decode_replicas}});
}

Json FamilyWorld::Get(const kube::ResourceType& type, const std::string& name) {
  StatusOr<Json> object = server.Get(type, {kTestSpace, name});
  return object.ok() ? *std::move(object) : Json();
}

std::vector<std::string> FamilyWorld::Names(const kube::ResourceType& type) {
  std::vector<std::string> names;
  CHECK(server
            .List(type, {.space = kTestSpace},
                  [&](Json& object) {
                    names.push_back(object["metadata"]["name"]);
                  })
            .ok());
  return names;
}

Json FamilyWorld::Condition(const kube::ResourceType& type,
                            const std::string& name,
                            const std::string& condition) {
  const Json object = Get(type, name);
  if (!object.contains("status")) return Json();
  for (const Json& each : object["status"].value("conditions", Json::array()))
    if (each["type"] == condition) return each;
  return Json();
}

void FamilyWorld::Fleet::Follow(const kube::ObjectKey&,
                                const std::vector<ConductorAddress>&,
                                bool closely) {
  follows_closely = closely;
}

FleetSnapshot FamilyWorld::Fleet::Snapshot(const kube::ObjectKey&) const {
  if (!is_reachable) return {};
  ConductorSeen seen = report;
  for (const auto& [name, worker] : workers) seen.workers.push_back(worker);
  return {seen};
}

void FamilyWorld::Fleet::SetRole(const RoleRequest& request) {
  asked.push_back(request);
  if (!ignores_requests) workers[request.worker].role = request.role;
}

void FamilyWorld::Report() {
  fleet.report.at = clock.Now();
  std::map<std::string, WorkerSeen> there;
  for (const std::string& name : Names(kube::kPod)) {
    const Json pod = Get(kube::kPod, name);
    const bool is_new = !fleet.workers.contains(name);
    WorkerSeen worker = fleet.workers[name];
    worker.name = name;
    worker.host = pod["status"].value("podIP", "");
    worker.connected = worker.ready = !broken_.contains(name);
    worker.incarnation = 1;
    if (is_new || !worker.role.has_value())
      worker.role = name.find("prefill") != std::string::npos
                        ? WorkerRole::kPrefill
                        : WorkerRole::kDecode;
    if (worker.max_requests == 0) worker.max_requests = 8;
    there[name] = worker;
  }
  fleet.workers = std::move(there);
}

std::string FamilyWorld::RoleLabel(const std::string& pod) {
  return Get(kube::kPod, pod)["metadata"]["labels"].value(kRoleLabel, "");
}

bool FamilyWorld::Settle() {
  for (int round = 0; round < kRoundsMax; ++round) {
    bool busy = process_->pump.Poll();
    while (!process_->dirty.empty()) {
      const kube::ObjectKey key = *process_->dirty.begin();
      process_->dirty.erase(process_->dirty.begin());
      const auto result = process_->reconciler.Reconcile(key);
      if (!result.ok()) errors.push_back(result.status());
      requeue = result.ok() ? result->requeue_after : std::nullopt;
      busy = true;
    }
    if (!busy) return true;
  }
  return false;
}

void FamilyWorld::ReconcileAll() {
  for (const kube::ObjectKey& key : process_->cache.Families())
    process_->dirty.insert(key);
}

bool FamilyWorld::Run() {
  for (int round = 0; round < kRoundsMax; ++round) {
    if (!Settle()) return false;
    if (!StepWorkloads()) return true;
    clock.Advance(std::chrono::seconds(1));
  }
  return false;
}

bool FamilyWorld::StepWorkloads() {
  bool changed = false;
  std::vector<Json> sets, deployments, pods;
  const auto list = [&](const kube::ResourceType& type,
                        std::vector<Json>& into) {
    CHECK(server.List(type, {}, [&](Json& object) { into.push_back(object); })
              .ok());
  };
  list(kube::kPod, pods);
  for (const Json& pod : pods)
    if (pod["metadata"].contains("deletionTimestamp")) {
      const kube::ObjectKey key{kTestSpace, pod["metadata"]["name"]};
      CHECK(server.Delete(kube::kPod, key, {.grace_period_seconds = 0}).ok());
      changed = true;
    }
  list(kube::kStatefulSet, sets);
  for (const Json& set : sets) changed |= StepStatefulSet(set);
  list(kube::kDeployment, deployments);
  for (const Json& deployment : deployments)
    changed |= StepDeployment(deployment);
  return changed;
}

bool FamilyWorld::StepPod(const Json& set, const std::string& revision,
                          int ordinal) {
  const std::string name = set["metadata"]["name"].get<std::string>() + "-" +
                           std::to_string(ordinal);
  const bool ready = !broken_.contains(name);
  const Json status = {
      {"phase", "Running"},
      {"podIP", "10.0.0." + std::to_string(ordinal + 1)},
      {"conditions", Json::array({{{"type", "Ready"},
                                   {"status", ready ? "True" : "False"}}})}};
  const Json before = Get(kube::kPod, name);
  if (!before.is_null() && before.value("status", Json()) == status)
    return false;
  if (before.is_null()) {
    Json metadata = set["spec"]["template"]["metadata"];
    metadata["name"] = name;
    metadata["namespace"] = kTestSpace;
    metadata["labels"][kRevisionLabel] = revision;
    metadata["ownerReferences"] =
        Json::array({{{"apiVersion", "apps/v1"},
                      {"kind", "StatefulSet"},
                      {"name", set["metadata"]["name"]},
                      {"uid", set["metadata"]["uid"]},
                      {"controller", true}}});
    Json spec = set["spec"]["template"]["spec"];
    spec["nodeName"] = "node-1";
    MustGet(server.Create(kube::kPod, kTestSpace,
                          {{"apiVersion", "v1"},
                           {"kind", "Pod"},
                           {"metadata", std::move(metadata)},
                           {"spec", std::move(spec)}}));
  }
  MustGet(server.Patch(kube::kPod, {kTestSpace, name}, kube::PatchType::kMerge,
                       {{"status", status}}, "status"));
  return true;
}

bool FamilyWorld::StepStatefulSet(const Json& set) {
  const std::string name = set["metadata"]["name"];
  const int replicas = set["spec"]["replicas"];
  const std::string revision = RevisionOf(set);
  bool changed = false;
  int ready = 0, updated = 0, total = 0;
  for (int ordinal = 0; ordinal < replicas; ++ordinal)
    changed |= StepPod(set, revision, ordinal);
  for (const std::string& pod_name : Names(kube::kPod)) {
    const Json pod = Get(kube::kPod, pod_name);
    if (pod["metadata"]["labels"].value(kPoolLabel, "") != name) continue;
    if (OrdinalOf(pod_name) >= replicas) {
      Delete(kube::kPod, pod_name);
      changed = true;
      continue;
    }
    ++total;
    if (!broken_.contains(pod_name)) ++ready;
    if (pod["metadata"]["labels"][kRevisionLabel] == revision) ++updated;
  }
  const Json status = {{"observedGeneration", set["metadata"]["generation"]},
                       {"replicas", total},
                       {"readyReplicas", ready},
                       {"updatedReplicas", updated},
                       {"updateRevision", revision}};
  if (set.value("status", Json()) == status) return changed;
  MustGet(server.Patch(kube::kStatefulSet, {kTestSpace, name},
                       kube::PatchType::kMerge, {{"status", status}},
                       "status"));
  return true;
}

bool FamilyWorld::StepDeployment(const Json& deployment) {
  const std::string name = deployment["metadata"]["name"];
  const int replicas = deployment["spec"]["replicas"];
  const int ready = broken_.contains(name) ? 0 : replicas;
  const Json status = {
      {"observedGeneration", deployment["metadata"]["generation"]},
      {"replicas", replicas},
      {"readyReplicas", ready},
      {"availableReplicas", ready},
      {"updatedReplicas", replicas}};
  if (deployment.value("status", Json()) == status) return false;
  MustGet(server.Patch(kube::kDeployment, {kTestSpace, name},
                       kube::PatchType::kMerge, {{"status", status}},
                       "status"));
  return true;
}

}  // namespace tidepool::reconcilers
