// What the controller keeps of the objects it watches: a few words each, so
// that ten thousand pods fit in a few megabytes.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/kube/client.h"
#include "dataplane/base/status.h"

namespace tidepool::reconcilers {

using Json = nlohmann::json;

// A KVCachePool, PrefillPool or DecodePool. Spec and status stay text until a
// plan needs them: parsed, a thousand of them would fill the memory.
struct CustomResource {
  kube::ObjectKey key;
  std::string uid;
  std::string resource_version;
  int64_t generation = 0;
  int64_t observed_generation = 0;  // that the status speaks of
  bool deleting = false;
  std::string family;  // the KVCachePool's name; "" if the reference is bad
  std::string spec, status;
};
// Errors: kInvalidArgument (no object of ours at all).
StatusOr<CustomResource> ToCustomResource(const Json& object);

// Figures of a Deployment or StatefulSet.
struct WorkloadFigures {
  int64_t generation = 0, observed_generation = 0;
  int32_t wanted = 0;  // spec.replicas
  int32_t replicas = 0, ready = 0, updated = 0, available = 0;
  std::string update_revision;  // StatefulSets
  std::string template_digest;  // kTemplateAnnotation
  uint32_t devices = 1;         // of each pod of its template
};

// An object that the controller made.
struct Child {
  kube::ObjectKey key;
  std::string uid;
  std::string owner_uid;          // of its controlling owner
  std::string family;             // kFamilyLabel
  uint64_t resource_version = 0;  // 0 if it is no number
  uint64_t digest = 0;            // of all but status and bookkeeping
  bool deleting = false;
  std::unique_ptr<const WorkloadFigures> figures;  // of workloads
};
StatusOr<Child> ToChild(const Json& object);
StatusOr<Child> ToWorkload(const Json& object);

// Of labels, annotations of ours, owner and whatever lies outside metadata and
// status: it changes when somebody changes what we may have set.
uint64_t DigestOf(const Json& object);

// Why a pod does not get on. A closed set.
enum class PodTrouble : uint8_t {
  kNone,
  kUnschedulable,
  kImage,   // cannot be pulled
  kConfig,  // a Secret or ConfigMap is missing
  kCrashing,
  kOutOfMemory,
};
std::string_view NameOf(PodTrouble trouble);

struct PodView {
  kube::ObjectKey key;
  std::string uid;
  std::string family, pool;  // labels
  std::string role;          // label
  std::string revision;      // of its StatefulSet
  std::string ip;
  uint32_t devices = 1;
  bool is_conductor = false;
  bool ready = false;
  bool terminating = false;
  bool finished = false;  // Succeeded or Failed: gone but for its name
  PodTrouble trouble = PodTrouble::kNone;
  std::string trouble_text;  // in the words of who noticed it, shortened
};
StatusOr<PodView> ToPodView(const Json& object);
// "demo-decode-1 Unschedulable: no node has room".
std::string DescribeTrouble(const PodView& pod);

// N of "POOL-N"; -1 if it has none.
int OrdinalOf(std::string_view pod);

// A kind, and an object of it that the controller made.
struct TypedChild {
  const kube::ResourceType* type = nullptr;
  std::shared_ptr<const Child> child;
};

struct WorkerPoolObserved {
  bool is_prefill = false;
  std::shared_ptr<const CustomResource> resource;
  Json spec, status;
  std::shared_ptr<const Child> stateful_set;
  std::vector<std::shared_ptr<const PodView>> pods;  // by ordinal

  const std::string& name() const { return resource->key.name; }
};

// A KVCachePool and what refers to it: everything a plan may look at.
struct FamilyObserved {
  kube::ObjectKey key;
  // Null when pools refer to what is not there.
  std::shared_ptr<const CustomResource> resource;
  Json spec, status;
  std::shared_ptr<const Child> deployment;
  std::vector<TypedChild> children;  // of the KVCachePool itself
  std::vector<std::shared_ptr<const PodView>> conductors;
  std::vector<WorkerPoolObserved> pools;  // prefill first, then by name
};

}  // namespace tidepool::reconcilers
