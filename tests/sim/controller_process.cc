#include "tests/sim/controller_process.h"

#include <algorithm>

#include "controller/kube/event_recorder.h"
#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "controller/reconcilers/cluster_cache.h"
#include "controller/reconcilers/family_reconciler.h"
#include "controller/runtime/controller_loop.h"
#include "controller/runtime/leading_client.h"
#include "tests/fakes/informer_pump.h"

namespace tidepool::sim {
namespace {

using kube::ObjectKey;
using kube::ResourceType;
using runtime::LeaderElectorCore;
using runtime::LeaseState;

constexpr Duration kResync = std::chrono::minutes(10);
constexpr Duration kReportInterval = std::chrono::seconds(1);
constexpr Duration kSampleInterval = std::chrono::seconds(30);
constexpr int kCallsMax = 50;  // of the reconciler in one step
constexpr double kEpochUnix = 1.8e9;

// Tells of each write before it is sent, and after it has taken effect.
class ToldClient final : public kube::Client {
 public:
  ToldClient(kube::Client& client, ControllerAudit& audit,
             std::function<void()> before_write)
      : client_(client), audit_(audit), before_(std::move(before_write)) {}

  StatusOr<Json> Get(const ResourceType& type, const ObjectKey& key) override {
    return client_.Get(type, key);
  }
  StatusOr<std::string> List(const ResourceType& type,
                             const kube::ListOptions& options,
                             const std::function<void(Json&)>& take) override {
    return client_.List(type, options, take);
  }
  Status Watch(const ResourceType& type, const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent&)>& take) override {
    return client_.Watch(type, options, take);
  }
  StatusOr<Json> Apply(const ResourceType& type, const ObjectKey& key,
                       const Json& object,
                       std::string_view subresource) override {
    return Told(type, subresource,
                [&] { return client_.Apply(type, key, object, subresource); });
  }
  StatusOr<Json> Create(const ResourceType& type, std::string_view space,
                        const Json& object) override {
    return Told(type, "", [&] { return client_.Create(type, space, object); });
  }
  StatusOr<Json> Replace(const ResourceType& type, const ObjectKey& key,
                         const Json& object,
                         std::string_view subresource) override {
    return Told(type, subresource, [&] {
      return client_.Replace(type, key, object, subresource);
    });
  }
  StatusOr<Json> Patch(const ResourceType& type, const ObjectKey& key,
                       kube::PatchType patch_type, const Json& patch,
                       std::string_view subresource) override {
    return Told(type, subresource, [&] {
      return client_.Patch(type, key, patch_type, patch, subresource);
    });
  }
  Status Delete(const ResourceType& type, const ObjectKey& key,
                const kube::DeleteOptions& options) override {
    return Told(type, "", [&] { return client_.Delete(type, key, options); });
  }

 private:
  template <typename Do>
  auto Told(const ResourceType& type, std::string_view subresource, Do act)
      -> decltype(act()) {
    audit_.CheckWrite(type, subresource);
    before_();
    auto result = act();
    audit_.Check();
    return result;
  }

  kube::Client& client_;
  ControllerAudit& audit_;
  const std::function<void()> before_;
};

}  // namespace

// ---- The fleet, as it is known ----

void FleetPort::Follow(
    const ObjectKey&,
    const std::vector<reconcilers::ConductorAddress>& conductors,
    bool closely) {
  if (closely && !closely_) listened_at_ = TimePoint();
  closely_ = closely;
  const auto is_followed = [&](const std::string& uid) {
    return std::ranges::find(conductors, uid,
                             &reconcilers::ConductorAddress::uid) !=
           conductors.end();
  };
  std::erase_if(conductors_,
                [&](const auto& entry) { return !is_followed(entry.first); });
  for (const auto& conductor : conductors) conductors_[conductor.uid];
}

reconcilers::FleetSnapshot FleetPort::Snapshot(const ObjectKey&) const {
  reconcilers::FleetSnapshot fleet;
  for (const auto& [uid, heard] : conductors_)
    if (heard.last.has_value()) fleet.push_back(*heard.last);
  return fleet;
}

bool FleetPort::Listen() {
  const TimePoint now = queue_.now();
  if (now < deaf_until_) return false;
  if (now - listened_at_ < (closely_ ? kReportInterval : kSampleInterval))
    return false;
  listened_at_ = now;
  bool is_first = false;
  for (auto& [uid, heard] : conductors_) {
    // Half of the time by the next second only.
    std::optional<reconcilers::ConductorSeen> said = cluster_.ReportOf(uid);
    if (!said.has_value()) continue;
    if (heard.under_way.has_value() && random_.Chance(0.5)) {
      std::swap(said, heard.under_way);
    } else {
      heard.under_way = said;
    }
    is_first |= !heard.last.has_value();
    heard.last = std::move(said);
    heard.last->at = now;
  }
  return is_first;
}

void FleetPort::SetRole(const reconcilers::RoleRequest& request) {
  if (random_.Chance(loss_)) return;
  cluster_.Send(request,
                Duration(static_cast<int64_t>(
                    random_.Unit() * static_cast<double>(delay_max_.count()))));
}

// ---- The process ----

struct ControllerProcess::Parts {
  Parts(fakes::ApiServer& server, EventQueue& queue, ControllerCluster& cluster,
        ControllerAudit& audit, const ControllerProcessOptions& options,
        const ControllerProcess& self)
      : clock(queue),
        election_options{
            .lease = {.space = "tidepool-system", .name = "controller"},
            .identity = options.identity},
        random(options.seed),
        client(server, random.Next()),
        election_client(server, random.Next()),
        election(election_options, random.Next()),
        told(client, audit, options.before_write),
        leading(told, [&self] { return self.IsLeading(); }),
        fleet(cluster, queue, random.Next()),
        cache({.seed = random.Next()}),
        events({.instance = options.identity, .seed = random.Next()}, leading,
               clock, [this] { return UnixNow(); }),
        keyring(leading, clock, [this] { return UnixNow(); }),
        reconciler({.version = "0.1.0",
                    .image_repository = "localhost/tidepool",
                    .space = "tidepool-system"},
                   {.client = leading,
                    .cache = cache,
                    .models = models,
                    .fleet = fleet,
                    .roles = fleet,
                    .keyring = keyring,
                    .events = events,
                    .clock = clock,
                    .unix_seconds = [this] { return UnixNow(); },
                    .random = [this] { return random.Next(); },
                    .term = [&self]() -> std::optional<uint64_t> {
                      if (!self.IsLeading()) return std::nullopt;
                      return self.term();
                    }}),
        loop({.name = "KVCachePool", .queue = {.seed = random.Next()}},
             reconciler, clock),
        pump(client, clock) {
    cache.OnChange([this](const ObjectKey& key) { loop.queue().Add(key); });
    for (runtime::InformerBase* informer : cache.informers())
      pump.Add(*informer);
  }

  double UnixNow() const {
    return kEpochUnix + Seconds(clock.Now().time_since_epoch()).count();
  }
  void EnqueueAll() {
    for (const ObjectKey& key : cache.Families()) loop.queue().Add(key);
    resync_at = clock.Now() + kResync;
  }
  bool HasSynced() {
    return std::ranges::all_of(cache.informers(), [](const auto* informer) {
      return informer->HasSynced();
    });
  }
  StatusOr<LeaseState> Perform(const LeaderElectorCore::Call& call);

  const QueueClock clock;
  const runtime::LeaderElectorOptions election_options;
  Random random;
  fakes::FaultyClient client, election_client;
  LeaderElectorCore election;
  ToldClient told;
  runtime::LeadingClient leading;
  FleetPort fleet;
  reconcilers::ClusterCache cache;
  reconcilers::LocalModelCatalog models;
  kube::EventRecorder events;
  reconcilers::Keyring keyring;
  reconcilers::FamilyReconciler reconciler;
  runtime::ControllerLoop loop;
  fakes::InformerPump pump;
  std::optional<uint64_t> led;  // the term that the queue was filled for
  TimePoint resync_at;
};

// As LeaderElector's thread does it.
StatusOr<LeaseState> ControllerProcess::Parts::Perform(
    const LeaderElectorCore::Call& call) {
  StatusOr<Json> lease = Internal("no call");
  if (call.verb == LeaderElectorCore::Verb::kGet) {
    lease = election_client.Get(kube::kLease, election_options.lease);
  } else {
    Json object = kube::Skeleton(kube::kLease, election_options.lease);
    Json& spec = object["spec"];
    spec["leaseDurationSeconds"] =
        std::chrono::ceil<std::chrono::seconds>(election_options.lease_duration)
            .count();
    if (!call.holder.empty()) spec["holderIdentity"] = call.holder;
    spec["leaseTransitions"] = call.transitions;
    spec["renewTime"] = kube::FormatMicroTime(UnixNow());
    if (call.verb == LeaderElectorCore::Verb::kCreate) {
      lease = election_client.Create(kube::kLease, election_options.lease.space,
                                     object);
    } else {
      object["metadata"]["resourceVersion"] = call.resource_version;
      lease =
          election_client.Replace(kube::kLease, election_options.lease, object);
    }
  }
  RETURN_IF_ERROR(lease.status());
  return runtime::ParseLease(*lease);
}

ControllerProcess::ControllerProcess(fakes::ApiServer& server,
                                     EventQueue& queue,
                                     ControllerCluster& cluster,
                                     ControllerAudit& audit,
                                     ControllerProcessOptions options)
    : queue_(queue),
      parts_(std::make_unique<Parts>(server, queue, cluster, audit, options,
                                     *this)) {}

ControllerProcess::~ControllerProcess() = default;

bool ControllerProcess::IsLeading() const {
  return parts_->election.IsLeading(queue_.now());
}

uint64_t ControllerProcess::term() const { return parts_->election.term(); }

fakes::FaultyClient& ControllerProcess::client() { return parts_->client; }

fakes::FaultyClient& ControllerProcess::election_client() {
  return parts_->election_client;
}

FleetPort& ControllerProcess::fleet() { return parts_->fleet; }

uint64_t ControllerProcess::writes() const { return parts_->client.writes(); }

void ControllerProcess::DropWatches() { parts_->pump.DropWatches(); }

void ControllerProcess::Step() {
  if (is_busy_ || queue_.now() < frozen_until_) return;
  is_busy_ = true;
  if (queue_.now() >= informers_from_) parts_->pump.Poll();
  Elect();
  Lead();
  is_busy_ = false;
}

void ControllerProcess::Elect() {
  while (const auto call =
             parts_->election.Next(queue_.now(), parts_->UnixNow()))
    parts_->election.Ended(*call, queue_.now(), parts_->Perform(*call));
}

void ControllerProcess::Lead() {
  Parts& parts = *parts_;
  if (parts.fleet.Listen())
    for (const ObjectKey& key : parts.cache.Families())
      parts.loop.queue().Add(key);
  if (!IsLeading() || !parts.HasSynced()) return;
  if (parts.led != term() || queue_.now() >= parts.resync_at) {
    parts.led = term();
    parts.EnqueueAll();
  }
  for (int calls = 0; calls < kCallsMax && IsLeading(); ++calls)
    if (!parts.loop.RunOne()) return;
}

}  // namespace tidepool::sim
