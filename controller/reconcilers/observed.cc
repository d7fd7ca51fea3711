#include "controller/reconcilers/observed.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "controller/kube/json_fields.h"
#include "controller/kube/resource_types.h"
#include "controller/reconcilers/names.h"
#include "controller/reconcilers/plan.h"
#include "controller/reconcilers/pod_template.h"
#include "dataplane/base/digest.h"

namespace tidepool::reconcilers {
namespace {

using kube::At;
using kube::IntegerAt;
using kube::TextAt;

constexpr size_t kTroubleBytesMax = 256;

kube::ObjectKey KeyOf(const Json& metadata) {
  return {.space = TextAt(metadata, "namespace"),
          .name = TextAt(metadata, "name")};
}

std::string ControllingOwner(const Json& metadata) {
  const Json& owners = At(metadata, "ownerReferences");
  if (!owners.is_array()) return "";
  for (const Json& owner : owners)
    if (At(owner, "controller") == true) return TextAt(owner, "uid");
  return "";
}

// Kept for long: without the room that it grew by.
std::string Dump(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.shrink_to_fit();
  return text;
}

bool IsReady(const Json& status) {
  const Json& conditions = At(status, "conditions");
  if (!conditions.is_array()) return false;
  for (const Json& condition : conditions)
    if (At(condition, "type") == "Ready")
      return At(condition, "status") == "True";
  return false;
}

// Of a pod, or the template of one. Ours need not be its first container:
// service meshes put theirs before it.
uint32_t DevicesOf(const Json& pod) {
  uint32_t devices = 1;
  const Json& containers = At(At(pod, "spec"), "containers");
  if (!containers.is_array()) return devices;
  for (const Json& container : containers)
    if (const Json& limits = At(At(container, "resources"), "limits");
        limits.is_object())
      devices = std::max(devices, ResourcesSpec{.limits = limits}.Devices());
  return devices;
}

// What its scheduler says of a pod without a node.
void ReadScheduled(const Json& status, PodView& pod) {
  const Json& conditions = At(status, "conditions");
  if (!conditions.is_array()) return;
  for (const Json& condition : conditions) {
    if (At(condition, "type") != "PodScheduled" ||
        At(condition, "status") != "False" ||
        At(condition, "reason") != "Unschedulable")
      continue;
    pod.trouble = PodTrouble::kUnschedulable;
    pod.trouble_text = TextAt(condition, "message");
  }
}

// The end of its log, of which the last line says why it ended.
std::string LastWords(const Json& terminated) {
  std::string text = TextAt(terminated, "message");
  while (text.ends_with('\n')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);  // npos + 1 is 0
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const std::string message = TextAt(line, "message");
  if (!message.empty()) return message;
  return text.empty()
             ? fmt::format("exit code {}", IntegerAt(terminated, "exitCode"))
             : text;
}

void ReadTrouble(const Json& container, PodView& pod) {
  const Json& waiting = At(At(container, "state"), "waiting");
  const std::string reason = TextAt(waiting, "reason");
  pod.trouble_text = TextAt(waiting, "message");
  if (reason == "ErrImagePull" || reason == "ImagePullBackOff" ||
      reason == "InvalidImageName" || reason == "ErrImageNeverPull") {
    pod.trouble = PodTrouble::kImage;
  } else if (reason == "CreateContainerConfigError" ||
             reason == "CreateContainerError") {
    pod.trouble = PodTrouble::kConfig;
  } else if (reason == "CrashLoopBackOff") {
    const Json& last = At(At(container, "lastState"), "terminated");
    const bool is_memory = At(last, "reason") == "OOMKilled";
    pod.trouble = is_memory ? PodTrouble::kOutOfMemory : PodTrouble::kCrashing;
    pod.trouble_text = is_memory ? "" : LastWords(last);
  } else {
    pod.trouble_text.clear();
  }
}

void ReadContainers(const Json& status, PodView& pod) {
  const Json& containers = At(status, "containerStatuses");
  if (!containers.is_array()) return;
  for (const Json& container : containers)
    if (pod.trouble == PodTrouble::kNone) ReadTrouble(container, pod);
}

}  // namespace

StatusOr<CustomResource> ToCustomResource(const Json& object) {
  const Json& metadata = At(object, "metadata");
  CustomResource resource{
      .key = KeyOf(metadata),
      .uid = TextAt(metadata, "uid"),
      .resource_version = TextAt(metadata, "resourceVersion"),
      .generation = IntegerAt(metadata, "generation"),
      .observed_generation =
          IntegerAt(At(object, "status"), "observedGeneration"),
      .deleting = At(metadata, "deletionTimestamp").is_string(),
      .spec = Dump(At(object, "spec")),
      .status = Dump(At(object, "status")),
  };
  if (resource.key.name.empty())
    return InvalidArgument("an object without metadata.name");
  resource.family =
      At(object, "kind") == kube::kKVCachePool.kind
          ? resource.key.name
          : TextAt(At(At(object, "spec"), "kvCachePoolRef"), "name");
  return resource;
}

uint64_t DigestOf(const Json& object) {
  Json kept = Json::object();
  for (const auto& [name, value] : object.items())
    if (name != "metadata" && name != "status" && name != "kind" &&
        name != "apiVersion")
      kept[name] = value;
  const Json& metadata = At(object, "metadata");
  kept["labels"] = At(metadata, "labels");
  kept["owners"] = At(metadata, "ownerReferences");
  const Json& annotations = At(metadata, "annotations");
  if (annotations.is_object())
    for (const auto& [name, value] : annotations.items())
      // Other controllers note their own progress in annotations.
      if (!name.starts_with("deployment.kubernetes.io/"))
        kept["annotations"][name] = value;
  return Checksum64(Dump(kept));
}

StatusOr<Child> ToChild(const Json& object) {
  const Json& metadata = At(object, "metadata");
  Child child{
      .key = KeyOf(metadata),
      .uid = TextAt(metadata, "uid"),
      .owner_uid = ControllingOwner(metadata),
      .family = TextAt(At(metadata, "labels"), kFamilyLabel),
      .digest = DigestOf(object),
      .deleting = At(metadata, "deletionTimestamp").is_string(),
  };
  if (child.key.name.empty())
    return InvalidArgument("an object without metadata.name");
  const std::string version = TextAt(metadata, "resourceVersion");
  std::from_chars(version.data(), version.data() + version.size(),
                  child.resource_version);
  return child;
}

StatusOr<Child> ToWorkload(const Json& object) {
  ASSIGN_OR_RETURN(Child child, ToChild(object));
  const Json& metadata = At(object, "metadata");
  const Json& status = At(object, "status");
  const auto figure = [&](std::string_view name) {
    return static_cast<int32_t>(IntegerAt(status, name));
  };
  child.figures = std::make_unique<WorkloadFigures>(WorkloadFigures{
      .generation = IntegerAt(metadata, "generation"),
      .observed_generation = IntegerAt(status, "observedGeneration"),
      .wanted =
          static_cast<int32_t>(IntegerAt(At(object, "spec"), "replicas", 1)),
      .replicas = figure("replicas"),
      .ready = figure("readyReplicas"),
      .updated = figure("updatedReplicas"),
      .available = figure("availableReplicas"),
      .update_revision = TextAt(status, "updateRevision"),
      .template_digest =
          TextAt(At(metadata, "annotations"), kTemplateAnnotation),
      .devices = DevicesOf(At(At(object, "spec"), "template")),
  });
  return child;
}

std::string_view NameOf(PodTrouble trouble) {
  switch (trouble) {
    case PodTrouble::kNone:
      return "None";
    case PodTrouble::kUnschedulable:
      return "Unschedulable";
    case PodTrouble::kImage:
      return "ImageNotPulled";
    case PodTrouble::kConfig:
      return "ConfigMissing";
    case PodTrouble::kCrashing:
      return "Crashing";
    case PodTrouble::kOutOfMemory:
      return "OutOfMemory";
  }
  return "Unknown";
}

StatusOr<PodView> ToPodView(const Json& object) {
  const Json& metadata = At(object, "metadata");
  const Json& labels = At(metadata, "labels");
  const Json& status = At(object, "status");
  const std::string phase = TextAt(status, "phase");
  PodView pod{
      .key = KeyOf(metadata),
      .uid = TextAt(metadata, "uid"),
      .family = TextAt(labels, kFamilyLabel),
      .pool = TextAt(labels, kPoolLabel),
      .role = TextAt(labels, kRoleLabel),
      .revision = TextAt(labels, kRevisionLabel),
      .ip = TextAt(status, "podIP"),
      .devices = DevicesOf(object),
      .is_conductor = At(labels, kComponentLabel) == "conductor",
      .ready = IsReady(status),
      .terminating = At(metadata, "deletionTimestamp").is_string(),
      .finished = phase == "Succeeded" || phase == "Failed",
  };
  if (pod.key.name.empty())
    return InvalidArgument("a pod without metadata.name");
  ReadContainers(status, pod);
  if (pod.trouble == PodTrouble::kNone) ReadScheduled(status, pod);
  pod.trouble_text = Shortened(std::move(pod.trouble_text), kTroubleBytesMax);
  return pod;
}

std::string DescribeTrouble(const PodView& pod) {
  std::string text = fmt::format("{} {}", pod.key.name, NameOf(pod.trouble));
  if (!pod.trouble_text.empty()) text += ": " + pod.trouble_text;
  return text;
}

int OrdinalOf(std::string_view pod) {
  const size_t dash = pod.rfind('-');
  if (dash == pod.npos) return -1;
  int ordinal = -1;
  const char* const end = pod.data() + pod.size();
  const auto [stop, error] =
      std::from_chars(pod.data() + dash + 1, end, ordinal);
  return error == std::errc() && stop == end && ordinal >= 0 ? ordinal : -1;
}

}  // namespace tidepool::reconcilers
