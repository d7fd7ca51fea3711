#include "controller/reconcilers/applier.h"

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "dataplane/base/digest.h"

namespace tidepool::reconcilers {
namespace {

void KeepFirst(Status& first, const Status& next) {
  if (first.ok()) first = next;
}

uint64_t DesiredDigest(const Manifest& manifest) {
  return Checksum64(manifest.object.dump());
}

// What is gone by now is no failure but news, which a watch will bring.
StatusOr<Json> Patched(StatusOr<Json> stored) {
  if (stored.status().code() != Code::kNotFound) return stored;
  return MakeError(Code::kAborted, "{}", MessageOf(stored.status()));
}

// The number of replicas was decided on what was seen then.
Json WithPrecondition(const kube::ResourceType& type, const Json& object,
                      const Child* current) {
  Json write = object;
  if (type == kube::kStatefulSet && current != nullptr)
    write["metadata"]["resourceVersion"] =
        std::to_string(current->resource_version);
  return write;
}

StatusOr<Child> Project(const kube::ResourceType& type, const Json& object) {
  const bool is_workload =
      type == kube::kStatefulSet || type == kube::kDeployment;
  return is_workload ? ToWorkload(object) : ToChild(object);
}

}  // namespace

Applier::Applier(kube::Client& client, const ClusterCache& cache,
                 kube::EventRecorder& events, const Clock& clock,
                 std::function<double()> unix_seconds)
    : client_(client),
      cache_(cache),
      events_(events),
      clock_(clock),
      unix_seconds_(std::move(unix_seconds)) {}

Status Applier::Carry(const PlanOwner& owner, Plan& plan,
                      FamilyMemory& memory) {
  Status first = ApplyObjects(owner, plan, memory);
  plan.NoteApplied(first);
  const Status written = FinishStatus(owner, plan, memory);
  const kube::EventSubject subject{.type = *owner.type,
                                   .key = owner.resource->key,
                                   .uid = owner.resource->uid};
  for (const EventNote& event : plan.events)
    events_.Record(subject,
                   event.is_warning ? kube::EventRecorder::Type::kWarning
                                    : kube::EventRecorder::Type::kNormal,
                   event.reason, "Reconcile", event.message);
  KeepFirst(first, written);
  return first;
}

Status Applier::ApplyObjects(const PlanOwner& owner, const Plan& plan,
                             FamilyMemory& memory) {
  Status first;
  for (const Manifest& manifest : plan.manifests)
    KeepFirst(first, ApplyOne(owner, manifest, memory));
  for (const ObjectPatch& patch : plan.patches) {
    const auto current =
        memory.Newest(*patch.type, patch.key,
                      cache_.Find(*patch.type, patch.key), clock_.Now());
    const StatusOr<Json> stored = Patched(client_.Patch(
        *patch.type, patch.key, kube::PatchType::kMerge,
        WithPrecondition(*patch.type, patch.patch, current.get())));
    KeepFirst(first, stored.status());
    if (!stored.ok() || *patch.type != kube::kStatefulSet) continue;
    // Its replicas: applied again in full once the template may follow.
    StatusOr<Child> child = Project(*patch.type, *stored);
    if (child.ok())
      memory.NoteApplied(*patch.type, 0,
                         std::make_shared<const Child>(*std::move(child)),
                         clock_.Now());
  }
  for (const Removal& removal : plan.removals)
    KeepFirst(first, Remove(removal, memory));
  return first;
}

Status Applier::ApplyOne(const PlanOwner& owner, const Manifest& manifest,
                         FamilyMemory& memory) {
  const TimePoint now = clock_.Now();
  const std::shared_ptr<const Child> current =
      memory.Newest(*manifest.type, manifest.key,
                    cache_.Find(*manifest.type, manifest.key), now);
  if (current != nullptr && current->owner_uid != owner.resource->uid)
    return FailedPrecondition("{} {} belongs to another object",
                              manifest.type->kind, manifest.key.ToString());
  const uint64_t desired = DesiredDigest(manifest);
  if (memory.IsApplied(*manifest.type, desired, current.get()))
    return OkStatus();
  ASSIGN_OR_RETURN(
      const Json stored,
      client_.Apply(
          *manifest.type, manifest.key,
          WithPrecondition(*manifest.type, manifest.object, current.get())));
  ASSIGN_OR_RETURN(Child child, Project(*manifest.type, stored));
  memory.NoteApplied(*manifest.type, desired,
                     std::make_shared<const Child>(std::move(child)), now);
  return OkStatus();
}

Status Applier::Remove(const Removal& removal, FamilyMemory& memory) {
  const Status removed =
      client_.Delete(*removal.type, removal.key, {.uid = removal.uid});
  // Gone already, or another one by now.
  if (!removed.ok() && removed.code() != Code::kNotFound &&
      removed.code() != Code::kAborted)
    return removed;
  if (*removal.type == kube::kPod) memory.NotePodDeleted(removal.uid);
  return OkStatus();
}

Status Applier::FinishStatus(const PlanOwner& owner, Plan& plan,
                             FamilyMemory& memory) {
  const Json before =
      owner.status->is_object() ? *owner.status : Json::object();
  const Json conditions = before.value("conditions", Json());
  for (EventNote& event : EventsOf(conditions, plan.conditions))
    plan.events.push_back(std::move(event));
  plan.status["conditions"] =
      MergeConditions(conditions, plan.conditions, owner.resource->generation,
                      kube::FormatTime(unix_seconds_()));
  Json patch = StatusPatch(before, plan.status);
  if (patch.is_null()) return OkStatus();
  return WriteStatus(owner, std::move(patch), /*only_if_unchanged=*/false,
                     memory);
}

Status Applier::WriteStatus(const PlanOwner& owner, Json patch,
                            bool only_if_unchanged, FamilyMemory& memory) {
  Json body = {{"status", std::move(patch)}};
  if (only_if_unchanged)
    body["metadata"] = {{"resourceVersion", owner.resource->resource_version}};
  ASSIGN_OR_RETURN(
      const Json stored,
      Patched(client_.Patch(*owner.type, owner.resource->key,
                            kube::PatchType::kMerge, body, "status")));
  ASSIGN_OR_RETURN(CustomResource resource, ToCustomResource(stored));
  memory.NoteWritten(
      *owner.type, std::make_shared<const CustomResource>(std::move(resource)),
      clock_.Now());
  return OkStatus();
}

}  // namespace tidepool::reconcilers
