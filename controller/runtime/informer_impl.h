// Bodies of Informer<T>.
#pragma once

#include <exception>
#include <utility>

#include "controller/runtime/informer.h"

namespace tidepool::runtime {
namespace internal {

kube::ObjectKey KeyOf(const kube::Json& object);
// Distinguishes versions of an object, also across its being made anew.
uint64_t VersionOf(const kube::Json& object);

}  // namespace internal

template <typename T>
void Informer<T>::Put(kube::Json& object) {
  const kube::ObjectKey key = internal::KeyOf(object);
  const uint64_t version = internal::VersionOf(object);
  {
    const MutexLock lock(&mutex_);
    const auto it = entries_.find(key);
    if (it != entries_.end()) {
      it->second.sequence = sequence_;
      if (it->second.version == version) return;
    }
  }
  // Not under the lock: only this thread writes, and readers need not wait.
  StatusOr<T> value = Internal("not transformed");
  try {
    value = transform_(object);
  } catch (const std::exception& error) {
    value = InvalidArgument("{}", error.what());
  }
  if (!value.ok()) return CountRejected(key, value.status());
  const auto after = std::make_shared<const T>(*std::move(value));
  Ptr before;
  {
    const MutexLock lock(&mutex_);
    const auto it = entries_.try_emplace(key).first;
    before = std::exchange(it->second.value, after);
    it->second.version = version;
    it->second.sequence = sequence_;
    Reindex(it->first, before.get(), after.get());
  }
  Tell(key, before.get(), after.get());
}

template <typename T>
void Informer<T>::Remove(const kube::Json& object) {
  Erase(internal::KeyOf(object));
}

template <typename T>
void Informer<T>::EndReplace() {
  std::vector<kube::ObjectKey> gone;
  {
    const MutexLock lock(&mutex_);
    for (const auto& [key, entry] : entries_)
      if (entry.sequence != sequence_) gone.push_back(key);
  }
  for (const kube::ObjectKey& key : gone) Erase(key);
}

template <typename T>
void Informer<T>::Erase(const kube::ObjectKey& key) {
  Ptr before;
  {
    const MutexLock lock(&mutex_);
    const auto it = entries_.find(key);
    if (it == entries_.end()) return;
    before = std::move(it->second.value);
    Reindex(it->first, before.get(), nullptr);
    entries_.erase(it);
  }
  Tell(key, before.get(), nullptr);
}

template <typename T>
void Informer<T>::Reindex(const kube::ObjectKey& stored_key, const T* before,
                          const T* after) {
  for (Index& index : indices_) {
    std::vector<std::string> former, current;
    if (before != nullptr) index.by(*before, former);
    if (after != nullptr) index.by(*after, current);
    if (former == current) continue;
    for (const std::string& value : former) {
      const auto it = index.values.find(value);
      if (it == index.values.end()) continue;  // named twice
      it->second.erase(&stored_key);
      if (it->second.empty()) index.values.erase(it);
    }
    for (const std::string& value : current)
      index.values[value].insert(&stored_key);
  }
}

}  // namespace tidepool::runtime
