#include "tests/fakes/object_rules.h"

#include <algorithm>
#include <array>

#include "controller/kube/resource_types.h"

namespace tidepool::fakes {

using kube::Json;
using kube::ResourceType;

namespace {

const Json* MetadataAt(const Json& object, const char* field) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return nullptr;
  const auto it = metadata->find(field);
  return it == metadata->end() || it->is_null() ? nullptr : &*it;
}

}  // namespace

std::string TypeId(const ResourceType& type) {
  return fmt::format("{}/{}", type.group, type.plural);
}

bool HasStatus(const ResourceType& type) {
  static constexpr std::array kWithout = {
      kube::kSecret, kube::kConfigMap, kube::kServiceAccount,
      kube::kLease,  kube::kEvent,     kube::kNetworkPolicy};
  return std::ranges::find(kWithout, type) == kWithout.end();
}

StatusOr<Json> Restricted(const ResourceType& type,
                          std::string_view subresource, const Json& before,
                          Json after) {
  if (subresource.empty()) {
    if (!HasStatus(type)) return after;
    after.erase("status");
    if (before.contains("status")) after["status"] = before.at("status");
    return after;
  }
  if (subresource != "status" || !HasStatus(type))
    return NotFound("{} have no subresource `{}`", type.plural, subresource);
  Json result = before;
  result.erase("status");
  if (after.contains("status")) result["status"] = std::move(after["status"]);
  return result;
}

std::string MetadataText(const Json& object, const char* field) {
  const Json* value = MetadataAt(object, field);
  return value != nullptr && value->is_string() ? value->get<std::string>()
                                                : std::string();
}

Status CheckPreconditions(const Json& stored, const Json& write) {
  for (const char* field : {"resourceVersion", "uid"}) {
    const std::string wanted = MetadataText(write, field);
    if (!wanted.empty() && wanted != MetadataText(stored, field))
      return MakeError(Code::kAborted,
                       "{}: the object has been modified: {} is {}, not {}",
                       MetadataText(stored, "name"), field,
                       MetadataText(stored, field), wanted);
  }
  return OkStatus();
}

bool SpecChanged(const Json& before, const Json& after) {
  const auto without = [](Json object) {
    object.erase("metadata");
    object.erase("status");
    return object;
  };
  return without(before) != without(after);
}

bool SameButVersion(const Json& before, const Json& after) {
  if (MetadataText(before, "resourceVersion") ==
      MetadataText(after, "resourceVersion"))
    return before == after;
  const auto without = [](Json object) {
    if (object.contains("metadata"))
      object["metadata"].erase("resourceVersion");
    return object;
  };
  return without(before) == without(after);
}

bool IsTerminating(const Json& object) {
  return MetadataAt(object, "deletionTimestamp") != nullptr;
}

bool HasFinalizers(const Json& object) {
  const Json* finalizers = MetadataAt(object, "finalizers");
  return finalizers != nullptr && !finalizers->empty();
}

std::vector<std::string> OwnerUids(const Json& object) {
  std::vector<std::string> uids;
  const Json* owners = MetadataAt(object, "ownerReferences");
  if (owners == nullptr || !owners->is_array()) return uids;
  for (const Json& owner : *owners) uids.push_back(owner.value("uid", ""));
  return uids;
}

}  // namespace tidepool::fakes
