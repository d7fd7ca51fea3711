#include "tests/fakes/api_server.h"

#include <utility>

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "tests/fakes/api_server_impl.h"
#include "tests/fakes/object_rules.h"

namespace tidepool::fakes {

using kube::Json;
using kube::ObjectKey;
using kube::ResourceType;

namespace {

constexpr double kBeginning = 1767225600;  // 2026-01-01

Status Missing(const ResourceType& type, const ObjectKey& key) {
  return NotFound("{} {} not found", type.plural, key.ToString());
}

// Of those who write without applying.
constexpr char kUpdater[] = "update";

std::string Applier(std::string_view subresource) {
  return fmt::format("{}/{}", kube::kFieldManager, subresource);
}

}  // namespace

double ApiServer::Impl::UnixNow() const {
  return kBeginning + Seconds(clock.Now().time_since_epoch()).count();
}

Stored* ApiServer::Impl::Find(const ResourceType& type, const ObjectKey& key) {
  const auto of_type = objects.find(TypeId(type));
  if (of_type == objects.end()) return nullptr;
  const auto it = of_type->second.find(key);
  return it == of_type->second.end() ? nullptr : &it->second;
}

void ApiServer::Impl::Link(const Address& address, const Snapshot& object,
                           bool add) {
  if (object == nullptr) return;
  for (const std::string& uid : OwnerUids(*object)) {
    std::set<Address>& of_owner = dependents[uid];
    if (add) {
      of_owner.insert(address);
    } else {
      of_owner.erase(address);
      if (of_owner.empty()) dependents.erase(uid);
    }
  }
}

// Makes `after` what is stored, `nullptr` for nothing, as one version.
void ApiServer::Impl::Commit(const Address& address, Snapshot after,
                             FieldOwnership owners) {
  auto& of_type = objects[address.first];
  const auto it = of_type.find(address.second);
  const Snapshot before = it == of_type.end() ? nullptr : it->second.object;
  Link(address, before, false);
  Link(address, after, true);
  ++version;
  ++changes[address.first];
  ++news;
  history.push_back({address.first, address.second, before, after});
  while (history.size() > options.history_max) {
    history.pop_front();
    ++forgotten;
  }
  if (after == nullptr) {
    uids.erase(MetadataText(*before, "uid"));
    of_type.erase(it);
  } else {
    uids.insert(MetadataText(*after, "uid"));
    of_type[address.second] = {std::move(after), std::move(owners)};
  }
}

void ApiServer::Impl::Remove(const Address& address) {
  const std::string uid =
      MetadataText(*objects[address.first].at(address.second).object, "uid");
  Commit(address, nullptr, {});
  const auto it = dependents.find(uid);
  if (it == dependents.end()) return;
  const std::set<Address> of_owner = it->second;
  for (const Address& dependent : of_owner) CollectOne(dependent);
}

bool ApiServer::Impl::IsOrphan(const Snapshot& object) {
  const std::vector<std::string> owners = OwnerUids(*object);
  for (const std::string& uid : owners)
    if (uids.contains(uid)) return false;
  return !owners.empty();
}

void ApiServer::Impl::CollectOne(const Address& address) {
  const Stored* stored = Find(types.at(address.first), address.second);
  if (stored != nullptr && IsOrphan(stored->object))
    (void)DeleteLocked(types.at(address.first), address.second, {});
}

StatusOr<Json> ApiServer::Impl::Put(const ResourceType& type,
                                    const ObjectKey& key, Json object,
                                    FieldOwnership owners) {
  const Address address{TypeId(type), key};
  types.emplace(address.first, type);
  const Stored* stored = Find(type, key);
  const Json* before = stored == nullptr ? nullptr : stored->object.get();
  if (!object.is_object()) return InvalidArgument("{}: no object", key.name);
  object["apiVersion"] = type.ApiVersion();
  object["kind"] = type.kind;
  Json& metadata = object["metadata"];
  metadata["name"] = key.name;
  if (type.namespaced) metadata["namespace"] = key.space;
  if (before == nullptr) {
    metadata["uid"] = fmt::format("00000000-0000-4000-8000-{:012x}", ++made);
    metadata["creationTimestamp"] = kube::FormatTime(UnixNow());
    metadata["generation"] = 1;
    for (const char* field : {"deletionTimestamp", "resourceVersion"})
      metadata.erase(field);
  } else {
    // What nobody but the server sets.
    for (const char* field :
         {"uid", "creationTimestamp", "generation", "deletionTimestamp",
          "deletionGracePeriodSeconds", "resourceVersion"}) {
      metadata.erase(field);
      if (before->at("metadata").contains(field))
        metadata[field] = before->at("metadata").at(field);
    }
  }
  if (admission) RETURN_IF_ERROR(admission(type, before, object));
  if (before != nullptr) {
    if (SpecChanged(*before, object))
      metadata["generation"] = metadata["generation"].get<int64_t>() + 1;
    if (SameButVersion(*before, object)) {
      objects[address.first][key].owners = std::move(owners);
      return object;
    }
  }
  metadata["resourceVersion"] = std::to_string(version + 1);
  Commit(address, std::make_shared<const Json>(object), std::move(owners));
  if (IsTerminating(object) && !HasFinalizers(object)) Remove(address);
  return object;
}

StatusOr<Json> ApiServer::Impl::ApplyLocked(const ResourceType& type,
                                            const ObjectKey& key,
                                            const Json& applied,
                                            std::string_view subresource) {
  if (!applied.is_object() || MetadataText(applied, "name") != key.name)
    return InvalidArgument("apply {}: metadata.name must be given", key.name);
  const Stored* stored = Find(type, key);
  if (stored == nullptr) {
    if (!subresource.empty()) return Missing(type, key);
    if (!MetadataText(applied, "resourceVersion").empty())
      return MakeError(Code::kAborted, "{} {}: is gone", type.plural, key.name);
    FieldOwnership owners;
    ASSIGN_OR_RETURN(Json object,
                     Restricted(type, "", Json::object(), applied));
    Json made_of = owners.Apply(Applier(""), Json::object(), object);
    return Put(type, key, std::move(made_of), std::move(owners));
  }
  RETURN_IF_ERROR(CheckPreconditions(*stored->object, applied));
  // Only what this subresource covers is owned through it.
  Json covered = applied;
  if (subresource.empty()) {
    if (HasStatus(type)) covered.erase("status");
  } else {
    covered = {{"status", applied.value("status", Json::object())}};
  }
  FieldOwnership owners = stored->owners;
  Json merged = owners.Apply(Applier(subresource), *stored->object, covered);
  ASSIGN_OR_RETURN(Json object, Restricted(type, subresource, *stored->object,
                                           std::move(merged)));
  return Put(type, key, std::move(object), std::move(owners));
}

StatusOr<Json> ApiServer::Impl::Update(const ResourceType& type,
                                       const ObjectKey& key, Json object,
                                       std::string_view subresource) {
  const Stored* stored = Find(type, key);
  if (stored == nullptr) return Missing(type, key);
  RETURN_IF_ERROR(CheckPreconditions(*stored->object, object));
  ASSIGN_OR_RETURN(Json after, Restricted(type, subresource, *stored->object,
                                          std::move(object)));
  FieldOwnership owners = stored->owners;
  owners.Update(kUpdater, *stored->object, after);
  return Put(type, key, std::move(after), std::move(owners));
}

void ApiServer::Impl::Mark(const Address& address, Stored& stored,
                           int64_t grace_seconds) {
  if (IsTerminating(*stored.object)) return;
  Json object = *stored.object;
  Json& metadata = object["metadata"];
  metadata["deletionTimestamp"] =
      kube::FormatTime(UnixNow() + static_cast<double>(grace_seconds));
  metadata["deletionGracePeriodSeconds"] = grace_seconds;
  metadata["generation"] = metadata["generation"].get<int64_t>() + 1;
  metadata["resourceVersion"] = std::to_string(version + 1);
  Commit(address, std::make_shared<const Json>(std::move(object)),
         stored.owners);
}

Status ApiServer::Impl::DeleteLocked(const ResourceType& type,
                                     const ObjectKey& key,
                                     const kube::DeleteOptions& given) {
  Stored* stored = Find(type, key);
  if (stored == nullptr) return Missing(type, key);
  Json wanted = {{"metadata", Json::object()}};
  if (given.uid) wanted["metadata"]["uid"] = *given.uid;
  if (given.resource_version)
    wanted["metadata"]["resourceVersion"] = *given.resource_version;
  RETURN_IF_ERROR(CheckPreconditions(*stored->object, wanted));
  const Address address{TypeId(type), key};
  const Json& object = *stored->object;
  const Json spec = object.value("spec", Json::object());
  const int64_t grace = given.grace_period_seconds.value_or(
      spec.value("terminationGracePeriodSeconds", int64_t{30}));
  const bool lingers = options.graceful_pods && type == kube::kPod &&
                       spec.contains("nodeName") && grace != 0;
  if (lingers || HasFinalizers(object)) {
    Mark(address, *stored, type == kube::kPod ? grace : 0);
  } else {
    Remove(address);
  }
  return OkStatus();
}

ApiServer::ApiServer(ApiServerOptions options, const Clock& clock)
    : impl_(std::make_unique<Impl>(options, clock)) {}
ApiServer::~ApiServer() = default;

StatusOr<Json> ApiServer::Get(const ResourceType& type, const ObjectKey& key) {
  const MutexLock lock(&impl_->mutex);
  const Stored* stored = impl_->Find(type, key);
  if (stored == nullptr) return Missing(type, key);
  return *stored->object;
}

StatusOr<Json> ApiServer::Apply(const ResourceType& type, const ObjectKey& key,
                                const Json& object,
                                std::string_view subresource) {
  const MutexLock lock(&impl_->mutex);
  return impl_->ApplyLocked(type, key, object, subresource);
}

StatusOr<Json> ApiServer::Create(const ResourceType& type,
                                 std::string_view space, const Json& object) {
  const MutexLock lock(&impl_->mutex);
  ObjectKey key{std::string(space), MetadataText(object, "name")};
  if (const std::string prefix = MetadataText(object, "generateName");
      key.name.empty() && !prefix.empty())
    key.name = fmt::format("{}{:05x}", prefix, impl_->made + 1);
  if (key.name.empty())
    return InvalidArgument("create {}: metadata.name is required", type.kind);
  if (impl_->Find(type, key) != nullptr)
    return MakeError(Code::kAlreadyExists, "{} {} already exists", type.plural,
                     key.ToString());
  ASSIGN_OR_RETURN(Json after, Restricted(type, "", Json::object(), object));
  FieldOwnership owners;
  owners.Update(kUpdater, Json::object(), after);
  return impl_->Put(type, key, std::move(after), std::move(owners));
}

StatusOr<Json> ApiServer::Replace(const ResourceType& type,
                                  const ObjectKey& key, const Json& object,
                                  std::string_view subresource) {
  const MutexLock lock(&impl_->mutex);
  return impl_->Update(type, key, object, subresource);
}

StatusOr<Json> ApiServer::Patch(const ResourceType& type, const ObjectKey& key,
                                kube::PatchType patch_type, const Json& patch,
                                std::string_view subresource) {
  const MutexLock lock(&impl_->mutex);
  const Stored* stored = impl_->Find(type, key);
  if (stored == nullptr) return Missing(type, key);
  Json object = *stored->object;
  try {
    if (patch_type == kube::PatchType::kMerge) {
      object.merge_patch(patch);
    } else {
      object = object.patch(patch);
    }
  } catch (const Json::exception& error) {
    return InvalidArgument("patch {}: {}", key.ToString(), error.what());
  }
  if (subresource == "scale") {
    // Of the object only the number of replicas is in it.
    Json scaled = *stored->object;
    if (object.contains("spec") && object["spec"].contains("replicas"))
      scaled["spec"]["replicas"] = object["spec"]["replicas"];
    object = std::move(scaled);
    subresource = "";
  }
  return impl_->Update(type, key, std::move(object), subresource);
}

Status ApiServer::Delete(const ResourceType& type, const ObjectKey& key,
                         const kube::DeleteOptions& options) {
  const MutexLock lock(&impl_->mutex);
  return impl_->DeleteLocked(type, key, options);
}

uint64_t ApiServer::version() const {
  const MutexLock lock(&impl_->mutex);
  return impl_->version;
}

uint64_t ApiServer::changes(const ResourceType& type) const {
  const MutexLock lock(&impl_->mutex);
  const auto it = impl_->changes.find(TypeId(type));
  return it == impl_->changes.end() ? 0 : it->second;
}

void ApiServer::CollectGarbage() {
  const MutexLock lock(&impl_->mutex);
  std::vector<Impl::Address> owned;
  for (const auto& [uid, of_owner] : impl_->dependents)
    owned.insert(owned.end(), of_owner.begin(), of_owner.end());
  for (const Impl::Address& address : owned) impl_->CollectOne(address);
}

void ApiServer::set_admission(Admission admission) {
  const MutexLock lock(&impl_->mutex);
  impl_->admission = std::move(admission);
}

void ApiServer::set_between_pages(std::function<void()> hook) {
  const MutexLock lock(&impl_->mutex);
  impl_->between_pages = std::move(hook);
}

}  // namespace tidepool::fakes
