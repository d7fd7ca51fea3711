// What the parts of the ApiServer share.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tests/fakes/api_server.h"
#include "tests/fakes/field_ownership.h"
#include "tests/fakes/label_selector.h"

namespace tidepool::fakes {

using Snapshot = std::shared_ptr<const kube::Json>;

struct Stored {
  Snapshot object;
  FieldOwnership owners;
};

struct Change {
  std::string type;
  kube::ObjectKey key;
  Snapshot before, after;  // null: was not, is not
};

// Of a watch or list.
struct Filter {
  std::string type, space;
  LabelSelector labels;

  bool Matches(const kube::ObjectKey& key, const Snapshot& object) const {
    return object != nullptr && (space.empty() || space == key.space) &&
           labels.Matches(*object);
  }
};

struct ApiServer::Impl {
  using Address = std::pair<std::string, kube::ObjectKey>;  // type, key

  Impl(ApiServerOptions given, const Clock& time)
      : options(given), clock(time) {}

  double UnixNow() const;

  // All with the mutex held. The address names what is stored, if anything is.
  Stored* Find(const kube::ResourceType& type, const kube::ObjectKey& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  StatusOr<kube::Json> Put(const kube::ResourceType& type,
                           const kube::ObjectKey& key, kube::Json object,
                           FieldOwnership owners)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  StatusOr<kube::Json> ApplyLocked(const kube::ResourceType& type,
                                   const kube::ObjectKey& key,
                                   const kube::Json& applied,
                                   std::string_view subresource)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  StatusOr<kube::Json> Update(const kube::ResourceType& type,
                              const kube::ObjectKey& key, kube::Json object,
                              std::string_view subresource)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  Status DeleteLocked(const kube::ResourceType& type,
                      const kube::ObjectKey& key,
                      const kube::DeleteOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Mark(const Address& address, Stored& stored, int64_t grace_seconds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Remove(const Address& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Commit(const Address& address, Snapshot after, FieldOwnership owners)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Link(const Address& address, const Snapshot& object, bool add)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool IsOrphan(const Snapshot& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void CollectOne(const Address& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // In the order of keys. Errors: kOutOfRange.
  StatusOr<std::map<kube::ObjectKey, Snapshot>> At(const Filter& filter,
                                                   uint64_t at_version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const ApiServerOptions options;
  const Clock& clock;

  Mutex mutex;
  std::map<std::string, std::map<kube::ObjectKey, Stored>> objects
      ABSL_GUARDED_BY(mutex);
  std::map<std::string, kube::ResourceType> types ABSL_GUARDED_BY(mutex);
  std::set<std::string> uids ABSL_GUARDED_BY(mutex);
  std::map<std::string, std::set<Address>> dependents ABSL_GUARDED_BY(mutex);
  // Change i has the version forgotten + 1 + i.
  std::deque<Change> history ABSL_GUARDED_BY(mutex);
  uint64_t forgotten ABSL_GUARDED_BY(mutex) = 0;
  uint64_t version ABSL_GUARDED_BY(mutex) = 0;
  uint64_t made ABSL_GUARDED_BY(mutex) = 0;  // objects, for uids and names
  std::map<std::string, uint64_t> changes ABSL_GUARDED_BY(mutex);
  uint64_t bookmarks ABSL_GUARDED_BY(mutex) = 0;
  uint64_t ends ABSL_GUARDED_BY(mutex) = 0;
  uint64_t news ABSL_GUARDED_BY(mutex) = 0;  // anything a watch may wait for
  Admission admission ABSL_GUARDED_BY(mutex);
  std::function<void()> between_pages ABSL_GUARDED_BY(mutex);
};

}  // namespace tidepool::fakes
