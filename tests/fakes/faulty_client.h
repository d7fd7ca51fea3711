// One process's connection to the ApiServer, with faults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/kube/client.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/random.h"
#include "dataplane/base/status.h"
#include "tests/fakes/api_server.h"

namespace tidepool::fakes {

// Each probability is per call.
struct FaultRates {
  double write_lost = 0;    // kUnavailable, nothing happened
  double answer_lost = 0;   // kDeadlineExceeded, the write happened
  double conflict = 0;      // kAborted, nothing happened
  double read_failed = 0;   // kUnavailable
  double read_stale = 0;    // Get and List answer from the past
  double list_broken = 0;   // kOutOfRange between objects
  uint64_t stale_max = 20;  // how many versions back
};

// Thread-safe. Writes are Apply, Create, Replace, Patch and Delete.
class FaultyClient final : public kube::Client {
 public:
  // `server` must outlive it.
  FaultyClient(ApiServer& server, uint64_t seed);

  void set_rates(const FaultRates& rates);

  // The n-th write from now on (1 is the next) fails, and so do all calls after
  // it, with kUnavailable, until Revive: the process died there. `after`: the
  // write took effect.
  void DieAtWrite(uint64_t n, bool after);
  // The n-th write from now on alone fails.
  void FailWrite(uint64_t n, bool after);
  // All calls fail with kUnavailable: the server is away.
  void Cut();
  // All calls fail with kDeadlineExceeded: frozen on either side.
  void Freeze();
  // Watches that are open now tell bookmarks from here on, but no events: a
  // defect that servers have had.
  void Deafen();
  // Ends Cut, Freeze and death.
  void Revive();
  bool dead() const;

  // Writes tried, and those that took effect.
  uint64_t writes() const;
  uint64_t writes_done() const;

  // As ApiServer::OpenWatch; its Poll fails with kUnavailable while this
  // client is cut or dead and says nothing while it is frozen.
  StatusOr<std::unique_ptr<ApiServer::Stream>> OpenWatch(
      const kube::ResourceType& type, const kube::WatchOptions& options);

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

 private:
  enum class Link { kUp, kCut, kFrozen, kDead };
  struct Fault {
    uint64_t at_write = 0;
    bool after = false;
    bool die = false;
  };

  Status Reach() const;
  uint64_t deafened() const;
  template <typename Do>
  auto Write(Do&& act) -> decltype(act());
  bool Chance(double probability);
  std::optional<uint64_t> PastVersion();

  ApiServer& server_;
  mutable Mutex mutex_;
  Random random_ ABSL_GUARDED_BY(mutex_);
  FaultRates rates_ ABSL_GUARDED_BY(mutex_);
  Link link_ ABSL_GUARDED_BY(mutex_) = Link::kUp;
  std::vector<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  uint64_t deafened_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t writes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t writes_done_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidepool::fakes
