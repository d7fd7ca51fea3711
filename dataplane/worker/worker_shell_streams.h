// Between the core's streams and grants and the messenger's batches and
// capabilities.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/mutex.h"
#include "dataplane/engine/kv_layout.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/worker/worker_core.h"
#include "dataplane/worker/worker_core_streams.h"

namespace tidepool::worker {

// Our KV memory as others may write it. Confined to the core's thread, but for
// what its callbacks say.
class MemoryGrants {
 public:
  MemoryGrants(transfer::Messenger& messenger, transfer::RegionId region,
               const engine::KvLayout& layout, int32_t num_pages)
      : messenger_(messenger),
        region_(region),
        layout_(layout),
        num_pages_(num_pages) {}

  StatusOr<wire::TransferCapability> Grant(const GrantCapability& grant,
                                           TimePoint now);
  // `done` runs on the messenger's thread.
  void Revoke(GrantId grant,
              std::function<void(const transfer::Received&)> done);

 private:
  transfer::Messenger& messenger_;
  const transfer::RegionId region_;
  const engine::KvLayout layout_;
  const int32_t num_pages_;
  std::map<GrantId, uint64_t> capabilities_;
};

// Sends slices as they become final. Thread-safe; no call waits.
class StreamSender {
 public:
  // On any thread, none of our locks held.
  struct Handlers {
    std::function<void(SlicesSent sent)> on_sent;
    std::function<void(StreamId stream)> on_closed;
  };

  StreamSender(transfer::Messenger& messenger, transfer::RegionId region,
               transfer::TransportPolicy policy, const engine::KvLayout& layout,
               int32_t num_pages, Handlers handlers);

  // On the core's thread.
  void StartStep(std::vector<StreamPages> pages);
  void AddFinal(StreamPages pages);
  void Open(std::shared_ptr<const StreamTarget> target);
  void Close(StreamId stream);

  // On the engine's thread.
  void OnLayer(int32_t layer);
  void FinishStep(bool ok);

 private:
  struct Stream {
    transfer::PeerId peer = 0;
    std::shared_ptr<const transfer::Capability> capability;
    std::set<transfer::SubmissionId> submissions;  // not completed
    Status failed;  // nothing can be sent: no way to this peer, or closed
  };
  // Shared with the completion.
  struct Sending {
    SliceSubmission submission;
    transfer::SubmissionId id = 0;  // guarded by mutex_
  };
  struct Peer {
    transfer::PeerId id = 0;
    uint64_t incarnation = 0;
    uint64_t last_used = 0;
  };

  StatusOr<transfer::PeerId> PeerFor(const StreamTarget& target);
  void SubmitAll(std::vector<SliceSubmission> submissions);
  void Submit(SliceSubmission submission);
  void Complete(const Sending& sending, const transfer::BatchResult& result);

  transfer::Messenger& messenger_;
  const transfer::RegionId region_;
  const transfer::TransportPolicy policy_;
  const engine::KvLayout layout_;
  const int32_t num_pages_;
  const Handlers handlers_;

  Mutex mutex_;
  SliceStreamer streamer_ ABSL_GUARDED_BY(mutex_);
  std::map<StreamId, Stream> streams_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Peer> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::worker
