#include "controller/reconcilers/family_memory.h"

#include <charconv>

#include "controller/kube/resource_types.h"
#include "dataplane/base/digest.h"

namespace tidepool::reconcilers {
namespace {

MemberId IdOf(const kube::ResourceType& type, const kube::ObjectKey& key) {
  return Checksum64(fmt::format("{} {}", type.kind, key.name));
}

uint64_t VersionOf(const CustomResource& resource) {
  uint64_t version = 0;
  const std::string& text = resource.resource_version;
  std::from_chars(text.data(), text.data() + text.size(), version);
  return version;
}

const kube::ResourceType& TypeOf(const WorkerPoolObserved& pool) {
  return pool.is_prefill ? kube::kPrefillPool : kube::kDecodePool;
}

}  // namespace

void FamilyMemory::NoteApplied(const kube::ResourceType& type, uint64_t desired,
                               std::shared_ptr<const Child> stored,
                               TimePoint now) {
  const MemberId id = IdOf(type, stored->key);
  applied_[id] = {desired, stored->digest};
  children_[id] = {std::move(stored), now};
}

void FamilyMemory::NoteWritten(const kube::ResourceType& type,
                               std::shared_ptr<const CustomResource> stored,
                               TimePoint now) {
  const MemberId id = IdOf(type, stored->key);
  resources_[id] = {std::move(stored), now};
}

void FamilyMemory::NoteMarked(const kube::ResourceType& type, uint64_t before,
                              std::shared_ptr<const Child> stored,
                              TimePoint now) {
  const MemberId id = IdOf(type, stored->key);
  const auto applied = applied_.find(id);
  if (applied != applied_.end() && applied->second.stored == before)
    applied->second.stored = stored->digest;
  children_[id] = {std::move(stored), now};
}

bool FamilyMemory::IsApplied(const kube::ResourceType& type, uint64_t desired,
                             const Child* child) const {
  if (child == nullptr) return false;
  const auto found = applied_.find(IdOf(type, child->key));
  return found != applied_.end() && found->second.desired == desired &&
         found->second.stored == child->digest;
}

std::shared_ptr<const Child> FamilyMemory::Newest(
    const kube::ResourceType& type, const kube::ObjectKey& key,
    std::shared_ptr<const Child> cached, TimePoint now) {
  const auto found = children_.find(IdOf(type, key));
  if (found == children_.end()) return cached;
  const Answer<Child>& answer = found->second;
  const bool is_ahead =
      cached == nullptr ||
      cached->resource_version < answer.object->resource_version;
  if (is_ahead && now - answer.at < kAnswerAgeMax) return answer.object;
  children_.erase(found);
  return cached;
}

std::shared_ptr<const CustomResource> FamilyMemory::NewestResource(
    const kube::ResourceType& type,
    std::shared_ptr<const CustomResource> cached, TimePoint now) {
  const auto found = resources_.find(IdOf(type, cached->key));
  if (found == resources_.end()) return cached;
  const Answer<CustomResource>& answer = found->second;
  if (VersionOf(*cached) < VersionOf(*answer.object) &&
      cached->uid == answer.object->uid && now - answer.at < kAnswerAgeMax)
    return answer.object;
  resources_.erase(found);
  return cached;
}

void FamilyMemory::OverlayPods(FamilyObserved& observed) {
  std::set<std::string> still_there;
  for (WorkerPoolObserved& pool : observed.pools) {
    for (auto& pod : pool.pods) {
      if (pod->terminating || !deleted_pods_.contains(pod->uid)) continue;
      still_there.insert(pod->uid);
      auto copy = std::make_shared<PodView>(*pod);
      copy->terminating = true;
      pod = std::move(copy);
    }
  }
  deleted_pods_ = std::move(still_there);
}

bool FamilyMemory::Overlay(FamilyObserved& observed, TimePoint now) {
  const auto is_old = [now](const auto& entry) {
    return now - entry.second.at >= kAnswerAgeMax;
  };
  std::erase_if(children_, is_old);
  std::erase_if(resources_, is_old);
  const auto renew = [&](const kube::ResourceType& type, auto& resource,
                         Json& spec, Json& status) {
    auto newest = NewestResource(type, resource, now);
    if (newest == resource) return;
    resource = std::move(newest);
    spec = Json::parse(resource->spec, nullptr, false);
    status = Json::parse(resource->status, nullptr, false);
  };
  if (observed.resource != nullptr)
    renew(kube::kKVCachePool, observed.resource, observed.spec,
          observed.status);
  for (WorkerPoolObserved& pool : observed.pools) {
    renew(TypeOf(pool), pool.resource, pool.spec, pool.status);
    pool.stateful_set = Newest(kube::kStatefulSet, pool.resource->key,
                               std::move(pool.stateful_set), now);
  }
  OverlayPods(observed);
  return !children_.empty() || !resources_.empty();
}

}  // namespace tidepool::reconcilers
