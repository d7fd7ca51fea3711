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
    const auto it = records_.find(key);
    if (it != records_.end()) {
      (*it)->sequence = sequence_;
      if ((*it)->version == version) return;
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
  auto after = std::make_shared<Record>(Record{.value = *std::move(value),
                                               .own_key = {},
                                               .version = version,
                                               .sequence = sequence_});
  if constexpr (!internal::KnowsItsKey<T>) after->own_key = key;
  std::shared_ptr<Record> before;
  {
    const MutexLock lock(&mutex_);
    auto it = records_.find(key);
    if (it != records_.end()) {
      before = *it;
      it = records_.erase(it);
    }
    records_.insert(it, after);
    Reindex(before, after);
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
    for (const auto& record : records_)
      if (record->sequence != sequence_) gone.push_back(record->key().ToKey());
  }
  for (const kube::ObjectKey& key : gone) Erase(key);
}

template <typename T>
void Informer<T>::Erase(const kube::ObjectKey& key) {
  std::shared_ptr<Record> before;
  {
    const MutexLock lock(&mutex_);
    const auto it = records_.find(key);
    if (it == records_.end()) return;
    before = *it;
    Reindex(before, nullptr);
    records_.erase(it);
  }
  Tell(key, before.get(), nullptr);
}

template <typename T>
void Informer<T>::Reindex(const std::shared_ptr<Record>& before,
                          const std::shared_ptr<Record>& after) {
  for (Index& index : indices_) {
    std::vector<std::string> former, current;
    if (before != nullptr) index.by(before->value, former);
    if (after != nullptr) index.by(after->value, current);
    for (const std::string& value : former) {
      const auto it = index.values.find(value);
      if (it == index.values.end()) continue;  // named twice
      it->second.erase(before);
      if (it->second.empty()) index.values.erase(it);
    }
    for (const std::string& value : current) index.values[value].insert(after);
  }
}

}  // namespace tidepool::runtime
