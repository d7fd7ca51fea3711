// A Kubernetes API server in memory, for tests and simulations.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "controller/kube/client.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/status.h"

namespace tidepool::fakes {

struct ApiServerOptions {
  // Changes that watches can be resumed over; older versions are answered 410.
  size_t history_max = 1000;
  // Pods that were bound to a node stay, with a deletionTimestamp, until they
  // are deleted with a grace period of 0, as by their kubelet.
  bool graceful_pods = true;
};

// What the real one does, as far as controllers depend on it: resource
// versions and conflicts; server-side apply with fields owned per manager, so
// that what a later apply leaves out goes; merge and JSON patches; the status
// and scale subresources and the generation; finalizers, deletion timestamps
// and collection of objects whose owners are gone; lists in pages of one
// version; watches over a bounded history. A write that changes nothing leaves
// the resource version alone.
//
// It does not validate: see set_admission. Lists are atomic to apply, but for
// those that the built-in types key (containers by name, …).
//
// Deterministic. Thread-safe; only Watch blocks. As a Client it is the
// administrator, whom no fault meets; `FaultyClient` stands for a process.
class ApiServer final : public kube::Client {
 public:
  // `clock` gives creation and deletion timestamps, from 2026-01-01 on.
  explicit ApiServer(ApiServerOptions options = {},
                     const Clock& clock = Clock::Monotonic());
  // Watches must have ended: see EndWatches.
  ~ApiServer() override;

  StatusOr<kube::Json> Get(const kube::ResourceType& type,
                           const kube::ObjectKey& key) override;
  StatusOr<std::string> List(
      const kube::ResourceType& type, const kube::ListOptions& options,
      const std::function<void(kube::Json&)>& take) override;
  Status Watch(const kube::ResourceType& type,
               const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent&)>& take) override;
  StatusOr<kube::Json> Apply(const kube::ResourceType& type,
                             const kube::ObjectKey& key,
                             const kube::Json& object,
                             std::string_view subresource = "") override;
  StatusOr<kube::Json> Create(const kube::ResourceType& type,
                              std::string_view space,
                              const kube::Json& object) override;
  StatusOr<kube::Json> Replace(const kube::ResourceType& type,
                               const kube::ObjectKey& key,
                               const kube::Json& object,
                               std::string_view subresource = "") override;
  StatusOr<kube::Json> Patch(const kube::ResourceType& type,
                             const kube::ObjectKey& key,
                             kube::PatchType patch_type,
                             const kube::Json& patch,
                             std::string_view subresource = "") override;
  Status Delete(const kube::ResourceType& type, const kube::ObjectKey& key,
                const kube::DeleteOptions& options = {}) override;

  // A watch that is read without blocking.
  class Stream {
   public:
    virtual ~Stream() = default;
    // The next event; nullopt if there is none now; kOutOfRange once what
    // comes next is no longer in the history; kUnavailable after EndWatches.
    virtual StatusOr<std::optional<kube::WatchEvent>> Poll() = 0;
  };
  // The server must outlive it. Errors: kOutOfRange.
  StatusOr<std::unique_ptr<Stream>> OpenWatch(
      const kube::ResourceType& type, const kube::WatchOptions& options);

  // Objects as they were at `version`, in the order of keys; kOutOfRange when
  // the history does not reach so far back.
  StatusOr<std::vector<kube::Json>> ListAt(const kube::ResourceType& type,
                                           const kube::ListOptions& options,
                                           uint64_t version);

  // Of all writes so far; every change has its own, ascending.
  uint64_t version() const;
  // Writes that changed something, by anybody.
  uint64_t changes(const kube::ResourceType& type) const;

  // Sends every open watch where it stands.
  void SendBookmarks();
  // Breaks all watches that are open.
  void EndWatches();
  // Forgets the history: watches not up to date, and versions before now, are
  // answered 410.
  void Compact();
  // Deletes what has owners none of which exists; done after each deletion,
  // too.
  void CollectGarbage();

  // Judges each object that is about to be stored; `before` is null when it is
  // new. May change it (defaults).
  using Admission =
      std::function<Status(const kube::ResourceType& type,
                           const kube::Json* before, kube::Json& after)>;
  void set_admission(Admission admission);
  // Called between the pages of a list.
  void set_between_pages(std::function<void()> hook);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::fakes
