#include "tests/sim/controller_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/names.h"
#include "controller/reconcilers/observed.h"
#include "dataplane/base/check.h"
#include "dataplane/base/digest.h"

namespace tidepool::sim {
namespace {

using kube::ResourceType;
using namespace std::chrono_literals;

// Nodes that are lost for longer have their pods deleted.
constexpr Duration kEvictAfter = 20s;
// Whatever watches hide, most have heard of it by then.
constexpr Duration kHeardAfter = 5min;

kube::ObjectKey KeyOf(const std::string& name) { return {kModelSpace, name}; }

std::string RevisionOf(const Json& workload) {
  return workload["metadata"]["name"].get<std::string>() + "-" +
         Sha256Of(workload["spec"]["template"].dump()).Hex().substr(0, 8);
}

std::unique_ptr<fakes::ApiServer::Stream> WatchOf(fakes::ApiServer& server,
                                                  const ResourceType& type) {
  auto stream = server.OpenWatch(
      type, {.space = kModelSpace,
             .resource_version = std::to_string(server.version())});
  CHECK(stream.ok());
  return *std::move(stream);
}

void Follow(fakes::ApiServer::Stream& stream,
            const std::function<void(const kube::WatchEvent&)>& take) {
  while (true) {
    const auto event = stream.Poll();
    CHECK(event.ok());
    if (!*event) return;
    if ((*event)->type != kube::EventType::kBookmark) take(**event);
  }
}

void Keep(std::map<std::string, Json>& objects, const kube::WatchEvent& event) {
  const std::string name = event.object["metadata"]["name"];
  if (event.type == kube::EventType::kDeleted) {
    objects.erase(name);
  } else {
    objects[name] = event.object;
  }
}

}  // namespace

uint32_t DevicesOf(const Json& pod) {
  for (const Json& container : pod["spec"]["containers"]) {
    const Json limits = container.value("resources", Json::object())
                            .value("limits", Json::object());
    if (limits.contains("nvidia.com/gpu"))
      return static_cast<uint32_t>(
          std::stoul(limits["nvidia.com/gpu"].get<std::string>()));
  }
  return 1;
}

ControllerCluster::ControllerCluster(fakes::ApiServer& server,
                                     EventQueue& queue, uint64_t seed,
                                     Report report)
    : server_(server),
      queue_(queue),
      random_(seed),
      report_(std::move(report)),
      pod_watch_(WatchOf(server, kube::kPod)),
      set_watch_(WatchOf(server, kube::kStatefulSet)),
      deployment_watch_(WatchOf(server, kube::kDeployment)) {}

ControllerCluster::~ControllerCluster() = default;

Duration ControllerCluster::Draw(int least_ms, int most_ms) {
  return std::chrono::milliseconds(
      least_ms + static_cast<int64_t>(random_.Below(
                     static_cast<uint64_t>(most_ms - least_ms + 1))));
}

void ControllerCluster::NotePod(const kube::WatchEvent& event) {
  const Json& object = event.object;
  const std::string name = object["metadata"]["name"];
  const std::string uid = object["metadata"]["uid"];
  const auto known = pods_.find(name);
  if (known != pods_.end() &&
      (known->second.uid != uid || event.type == kube::EventType::kDeleted))
    pods_.erase(known);
  if (event.type == kube::EventType::kDeleted) return;
  const Json& labels = object["metadata"]["labels"];
  const auto [entry, is_new] = pods_.try_emplace(name);
  ClusterPod& pod = entry->second;
  if (is_new) {
    pod.name = name;
    pod.uid = uid;
    pod.is_conductor =
        labels.value(reconcilers::kComponentLabel, "") == "conductor";
    pod.owner = labels.value(reconcilers::kPoolLabel, "");
    pod.own_role = labels.value(reconcilers::kRoleLabel, "") == "prefill"
                       ? WorkerRole::kPrefill
                       : WorkerRole::kDecode;
    pod.revision = labels.value(reconcilers::kRevisionLabel, "");
    pod.devices = pod.is_conductor ? 0 : DevicesOf(object);
    pod.made_at = now();
  }
  pod.role_label = labels.value(reconcilers::kRoleLabel, "");
  pod.terminating = object["metadata"].contains("deletionTimestamp");
}

void ControllerCluster::Sync() {
  Follow(*pod_watch_, [this](const auto& event) { NotePod(event); });
  Follow(*set_watch_, [this](const auto& event) { Keep(sets_, event); });
  Follow(*deployment_watch_,
         [this](const auto& event) { Keep(deployments_, event); });
}

void ControllerCluster::Step() {
  Sync();
  // Each of them is behind at times.
  if (random_.Chance(0.8))
    for (const auto& [name, set] : sets_) StepSet(set);
  if (random_.Chance(0.8))
    for (const auto& [name, deployment] : deployments_)
      StepDeployment(deployment);
  Sync();
  for (auto& [name, pod] : pods_)
    if (pod.node.empty() && !pod.terminating) Schedule(pod);
  std::vector<std::string> names;
  for (const auto& [name, pod] : pods_) names.push_back(name);
  for (const std::string& name : names) RunPod(pods_.at(name));
  Sync();
  NoteReady();
}

// ---- Controllers of Kubernetes ----

void ControllerCluster::SetStatus(const ResourceType& type, const Json& object,
                                  const Json& status) {
  if (object.value("status", Json()) == status) return;
  (void)server_.Patch(type, KeyOf(object["metadata"]["name"]),
                      kube::PatchType::kMerge, {{"status", status}}, "status");
}

void ControllerCluster::MakePod(const Json& owner, const std::string& name,
                                const std::string& revision) {
  Json metadata = owner["spec"]["template"]["metadata"];
  metadata["name"] = name;
  metadata["namespace"] = kModelSpace;
  metadata["labels"][reconcilers::kRevisionLabel] = revision;
  metadata["ownerReferences"] =
      Json::array({{{"apiVersion", owner["apiVersion"]},
                    {"kind", owner["kind"]},
                    {"name", owner["metadata"]["name"]},
                    {"uid", owner["metadata"]["uid"]},
                    {"controller", true}}});
  (void)server_.Create(kube::kPod, kModelSpace,
                       {{"apiVersion", "v1"},
                        {"kind", "Pod"},
                        {"metadata", std::move(metadata)},
                        {"spec", owner["spec"]["template"]["spec"]}});
}

// As with podManagementPolicy Parallel and updateStrategy OnDelete: pods that
// are there already keep their template, and their names are taken until they
// are gone.
void ControllerCluster::StepSet(const Json& set) {
  const std::string name = set["metadata"]["name"];
  if (set["metadata"].contains("deletionTimestamp")) return;
  const int replicas = set["spec"]["replicas"];
  const std::string revision = RevisionOf(set);
  int total = 0, ready = 0, updated = 0;
  std::vector<std::string> surplus;
  for (const auto& [pod_name, pod] : pods_) {
    if (pod.owner != name) continue;
    if (reconcilers::OrdinalOf(pod_name) >= replicas) {
      if (!pod.terminating) surplus.push_back(pod_name);
      continue;
    }
    ++total;
    if (Ready(pod)) ++ready;
    if (pod.revision == revision) ++updated;
  }
  for (int ordinal = 0; ordinal < replicas; ++ordinal) {
    const std::string pod = fmt::format("{}-{}", name, ordinal);
    if (!pods_.contains(pod)) MakePod(set, pod, revision);
  }
  for (const std::string& pod : surplus)
    (void)server_.Delete(kube::kPod, KeyOf(pod));
  SetStatus(kube::kStatefulSet, set,
            {{"observedGeneration", set["metadata"]["generation"]},
             {"replicas", total},
             {"readyReplicas", ready},
             {"updatedReplicas", updated},
             {"updateRevision", revision}});
}

void ControllerCluster::StepDeployment(const Json& deployment) {
  const int replicas = deployment["spec"]["replicas"];
  const std::string name = deployment["metadata"]["name"];
  int total = 0, ready = 0;
  for (const auto& [pod_name, pod] : pods_) {
    if (!pod.is_conductor || pod.terminating) continue;
    ++total;
    if (pod.up()) ++ready;
  }
  for (; total < replicas; ++total)
    MakePod(deployment, fmt::format("{}-{}", name, ++conductors_), "");
  SetStatus(kube::kDeployment, deployment,
            {{"observedGeneration", deployment["metadata"]["generation"]},
             {"replicas", replicas},
             {"readyReplicas", ready},
             {"availableReplicas", ready},
             {"updatedReplicas", replicas}});
}

// ---- Nodes ----

void ControllerCluster::AddNode(uint32_t devices) {
  nodes_.push_back(
      {.name = fmt::format("node-{}", nodes_.size()), .devices = devices});
}

ControllerCluster::Node* ControllerCluster::NodeOf(const ClusterPod& pod) {
  const auto found = std::ranges::find(nodes_, pod.node, &Node::name);
  return found == nodes_.end() ? nullptr : &*found;
}

void ControllerCluster::Schedule(ClusterPod& pod) {
  if (pod.made_at + 300ms > now()) return;
  if (now() >= cordoned_until_) {
    for (const Node& node : nodes_) {
      uint32_t taken = 0;
      for (const auto& [name, other] : pods_)
        if (other.node == node.name) taken += other.devices;
      if (node.lost_until.has_value() || taken + pod.devices > node.devices)
        continue;
      pod.node = node.name;
      // Binding is the scheduler's write; a pod that was deleted meanwhile is
      // gone.
      (void)server_.Patch(kube::kPod, KeyOf(pod.name), kube::PatchType::kMerge,
                          {{"metadata", {{"uid", pod.uid}}},
                           {"spec", {{"nodeName", node.name}}}});
      const bool slow = now() < slow_start_until_ || random_.Chance(0.05);
      pod.up_at = now() + (slow ? Draw(30'000, 150'000) : Draw(500, 12'000));
      return;
    }
  }
  TellStatus(pod);
}

bool ControllerCluster::HasUnschedulable() const {
  return std::ranges::any_of(pods_, [](const auto& entry) {
    return entry.second.node.empty() && !entry.second.terminating;
  });
}

void ControllerCluster::RunPod(ClusterPod& pod) {
  if (pod.node.empty()) return;
  const Node& node = *NodeOf(pod);
  if (node.lost_until.has_value()) {
    if (now() - node.lost_at > kEvictAfter && !pod.terminating)
      (void)server_.Delete(kube::kPod, KeyOf(pod.name), {.uid = pod.uid});
    TellStatus(pod);
    return;
  }
  if (pod.terminating) {
    if (!pod.gone_at.has_value())
      pod.gone_at = now() + (random_.Chance(0.2) ? Draw(10'000, 60'000)
                                                 : Draw(200, 8'000));
    if (now() >= *pod.gone_at) return EndPod(pod);
  }
  if (!pod.up() && !pod.crash_loops && pod.up_at.has_value() &&
      now() >= *pod.up_at)
    StartProcess(pod);
  if (pod.process.has_value() && pod.process->target.has_value() &&
      now() >= pod.process->switched_at) {
    pod.process->role = *pod.process->target;
    pod.process->target.reset();
    ++flips_;
  }
  TellStatus(pod);
}

// Used again, soon after the pod that had it is gone.
std::string ControllerCluster::FreeAddress() const {
  for (int last = 1;; ++last) {
    std::string address = fmt::format("10.0.0.{}", last);
    if (std::ranges::none_of(pods_, [&](const auto& entry) {
          return entry.second.ip == address;
        }))
      return address;
  }
}

void ControllerCluster::StartProcess(ClusterPod& pod) {
  if (pod.ip.empty()) pod.ip = FreeAddress();
  pod.process = WorkerProcess{.incarnation = ++starts_, .role = pod.own_role};
}

void ControllerCluster::EndPod(ClusterPod& pod) {
  (void)server_.Delete(kube::kPod, KeyOf(pod.name),
                       {.uid = pod.uid, .grace_period_seconds = 0});
}

void ControllerCluster::TellStatus(ClusterPod& pod) {
  Json status = {{"phase", pod.up() ? "Running" : "Pending"}};
  if (!pod.ip.empty()) status["podIP"] = pod.ip;
  Json conditions = Json::array(
      {{{"type", "Ready"}, {"status", Ready(pod) ? "True" : "False"}}});
  if (pod.node.empty())
    conditions.push_back({{"type", "PodScheduled"},
                          {"status", "False"},
                          {"reason", "Unschedulable"}});
  status["conditions"] = std::move(conditions);
  Json container = {{"restartCount", pod.restarts}};
  if (pod.crash_loops)
    container["state"] = {{"waiting", {{"reason", "CrashLoopBackOff"}}}};
  status["containerStatuses"] = Json::array({std::move(container)});
  std::string text = status.dump();
  if (text == pod.told) return;
  pod.told = std::move(text);
  (void)server_.Patch(kube::kPod, KeyOf(pod.name), kube::PatchType::kMerge,
                      {{"metadata", {{"uid", pod.uid}}}, {"status", status}},
                      "status");
}

bool ControllerCluster::Serves(const ClusterPod& pod) const {
  const auto node = std::ranges::find(nodes_, pod.node, &Node::name);
  return pod.up() && node != nodes_.end() && !node->lost_until.has_value();
}

bool ControllerCluster::Ready(const ClusterPod& pod) const {
  return Serves(pod) && !pod.terminating;
}

void ControllerCluster::NoteReady() {
  for (const WorkerRole role : {WorkerRole::kPrefill, WorkerRole::kDecode}) {
    const char* const label =
        role == WorkerRole::kPrefill ? "prefill" : "decode";
    const auto has_role = [label](const auto& entry) {
      return entry.second["spec"]["template"]["metadata"]["labels"].value(
                 reconcilers::kRoleLabel, "") == label;
    };
    if (std::ranges::none_of(sets_, has_role)) poolless_at_[role] = now();
  }
  std::erase_if(ready_at_, [this](const auto& entry) {
    return std::ranges::none_of(entry.second, [this](const auto& seen) {
      return now() - seen.second < 1min;
    });
  });
  for (const auto& [name, pod] : pods_)
    if (!pod.is_conductor && Ready(pod) && now() >= pod.hidden_until &&
        !pod.process->target.has_value())
      ready_at_[pod.uid][pod.process->role] = now();
}

// ---- Faults ----

ClusterPod* ControllerCluster::PickWorker(uint64_t pick) {
  std::vector<ClusterPod*> workers;
  for (auto& [name, pod] : pods_)
    if (!pod.is_conductor && pod.up()) workers.push_back(&pod);
  return workers.empty() ? nullptr : workers[pick % workers.size()];
}

void ControllerCluster::LoseNode(Duration lost_for) {
  for (Node& node : nodes_) {
    if (node.lost_until.has_value() || !random_.Chance(0.5)) continue;
    node.lost_at = now();
    node.lost_until = now() + lost_for;
    queue_.In(lost_for, [this, name = node.name] {
      const auto found = std::ranges::find(nodes_, name, &Node::name);
      if (found->lost_until.has_value() && *found->lost_until <= now())
        found->lost_until.reset();
    });
    return;
  }
}

void ControllerCluster::Cordon(Duration cordoned_for) {
  cordoned_until_ = now() + cordoned_for;
}

void ControllerCluster::StartSlowly(Duration slow_for) {
  slow_start_until_ = now() + slow_for;
}

void ControllerCluster::SlowFlips(Duration slow_for, Duration each) {
  slow_flips_until_ = now() + slow_for;
  slow_flip_ = each;
}

void ControllerCluster::HideWorker(uint64_t pick, Duration hidden_for) {
  if (ClusterPod* const pod = PickWorker(pick))
    pod->hidden_until = now() + hidden_for;
}

void ControllerCluster::CrashWorker(uint64_t pick, bool in_a_loop) {
  ClusterPod* const pod = PickWorker(pick);
  if (pod == nullptr) return;
  pod->process.reset();
  ++pod->restarts;
  pod->crash_loops = in_a_loop;
  pod->up_at = now() + Draw(500, 6'000);
  if (in_a_loop)
    queue_.In(Draw(20'000, 90'000), [this, name = pod->name, uid = pod->uid] {
      const auto found = pods_.find(name);
      if (found != pods_.end() && found->second.uid == uid)
        found->second.crash_loops = false;
    });
}

void ControllerCluster::CrashConductor(uint64_t pick) {
  for (auto& [name, pod] : pods_) {
    if (!pod.is_conductor || !pod.up() || pick-- % 2 != 0) continue;
    pod.process.reset();
    pod.up_at = now() + Draw(2'000, 20'000);
    return;
  }
}

void ControllerCluster::EvictPod(uint64_t pick) {
  if (ClusterPod* const pod = PickWorker(pick))
    (void)server_.Delete(kube::kPod, KeyOf(pod->name), {.uid = pod->uid});
}

void ControllerCluster::Heal() {
  cordoned_until_ = slow_start_until_ = slow_flips_until_ = now();
  for (Node& node : nodes_) node.lost_until.reset();
  for (auto& [name, pod] : pods_) {
    pod.crash_loops = false;
    pod.hidden_until = now();
    if (pod.process.has_value() && pod.process->switched_at > now() + 30s)
      pod.process->switched_at = now() + 30s;
  }
}

// ---- Workers ----

void ControllerCluster::Send(const reconcilers::RoleRequest& request,
                             Duration delay) {
  queue_.In(delay, [this, request] { Receive(request); });
}

void ControllerCluster::Receive(const reconcilers::RoleRequest& request) {
  const std::string host = request.address.substr(0, request.address.find(':'));
  const auto found = std::ranges::find_if(pods_, [&](const auto& entry) {
    return !entry.second.is_conductor && entry.second.ip == host &&
           Serves(entry.second);
  });
  if (found == pods_.end()) return;
  ClusterPod& pod = found->second;
  WorkerProcess& process = *pod.process;
  const RoleEpoch asked{request.term, request.sequence};
  if (now() < pod.hidden_until || pod.terminating ||
      request.incarnation != process.incarnation || asked < process.epoch)
    return;
  const WorkerRole wanted = process.target.value_or(process.role);
  if (asked == process.epoch) {
    if (request.role != wanted)
      report_(fmt::format("epoch {}.{} was used for two roles of {}",
                          asked.term, asked.sequence, pod.name));
    return;
  }
  process.epoch = asked;
  if (request.role == process.role) {
    process.target.reset();
    return;
  }
  if (process.target == request.role) return;  // goes on
  CheckLast(pod, process.role);
  process.target = request.role;
  Duration takes = random_.Chance(0.5) ? Draw(10, 800) : Draw(1'000, 8'000);
  if (now() < slow_flips_until_) takes = slow_flip_;
  process.switched_at = now() + takes;
}

// Nobody knows of a worker that died a moment ago.
void ControllerCluster::CheckLast(const ClusterPod& pod, WorkerRole left) {
  if (all_return_ || !Ready(pod)) return;
  // A role that no pool has any more is left, also by those who have not heard
  // that one has it again.
  const auto poolless = poolless_at_.find(left);
  if (poolless != poolless_at_.end() && now() - poolless->second < kHeardAfter)
    return;
  const bool others = std::ranges::any_of(ready_at_, [&](const auto& entry) {
    const auto seen = entry.second.find(left);
    return entry.first != pod.uid && seen != entry.second.end() &&
           now() - seen->second < 25s;
  });
  if (!others)
    report_(fmt::format("{} was the last ready {} instance and leaves it",
                        pod.name,
                        left == WorkerRole::kPrefill ? "prefill" : "decode"));
}

std::optional<reconcilers::ConductorSeen> ControllerCluster::ReportOf(
    const std::string& conductor_uid) const {
  const auto conductor = std::ranges::find_if(pods_, [&](const auto& entry) {
    return entry.second.uid == conductor_uid;
  });
  if (conductor == pods_.end() || !Serves(conductor->second))
    return std::nullopt;
  std::map<WorkerRole, double> ready;
  for (const auto& [name, pod] : pods_)
    if (!pod.is_conductor && Ready(pod)) ready[pod.process->role] += 1;
  const auto share = [&](WorkerRole role) {
    const double demand =
        role == WorkerRole::kPrefill ? demand_.prefill : demand_.decode;
    return demand_.per_instance ? demand : demand / std::max(1.0, ready[role]);
  };
  reconcilers::ConductorSeen seen{.at = now()};
  // Nobody computes what is asked of a role without instances.
  if (ready[WorkerRole::kDecode] == 0 && demand_.decode > 0.2) {
    seen.waiting_requests = seen.waiting_for_decode = 4;
  } else if (ready[WorkerRole::kPrefill] == 0 && demand_.prefill > 0.2) {
    seen.waiting_requests = 4;
    seen.waiting_prompt_tokens = 4000;
  }
  for (const auto& [name, pod] : pods_) {
    if (pod.is_conductor || !pod.up()) continue;
    const WorkerProcess& process = *pod.process;
    reconcilers::WorkerSeen worker{
        .name = name,
        .host = pod.ip,
        .connected = Serves(pod) && now() >= pod.hidden_until,
        .ready = Serves(pod),
        .draining = pod.terminating,
        .incarnation = process.incarnation,
        .role = process.role,
        .target = process.target,
        .max_requests = 100,
        .prefill_tokens_per_second = 1000,
        .pages_total = 100,
        .pages_free = 100};
    if (process.role == WorkerRole::kPrefill) {
      worker.queued_prefill_tokens =
          static_cast<uint64_t>(1000 * share(WorkerRole::kPrefill));
    } else {
      worker.running_requests =
          static_cast<uint32_t>(100 * share(WorkerRole::kDecode));
    }
    seen.workers.push_back(std::move(worker));
  }
  return seen;
}

}  // namespace tidepool::sim
