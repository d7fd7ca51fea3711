// The messenger over TCP and shared memory: owns the thread, the tables and the
// connections.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "dataplane/base/mutex.h"
#include "dataplane/transfer/counters.h"
#include "dataplane/transfer/event_loop.h"
#include "dataplane/transfer/grant_table.h"
#include "dataplane/transfer/inbound_connection.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/transfer/outbound_peer.h"

namespace tidepool::transfer::internal {

class SocketMessenger final : public Messenger {
 public:
  static StatusOr<std::unique_ptr<Messenger>> Create(
      const MessengerOptions& options);
  ~SocketMessenger() override;

  uint64_t incarnation() const override { return options_.incarnation; }
  std::string address() const override { return address_; }
  StatusOr<MemoryRegion> RegisterMemory(std::span<std::byte> memory,
                                        int shared_fd) override;
  StatusOr<Capability> Grant(const Window& window, TimePoint expiry) override;
  void Revoke(uint64_t capability_id, RevokeDone done) override;
  StatusOr<Received> ReceivedDigest(uint64_t capability_id) const override;
  StatusOr<PeerId> Connect(const PeerAddress& peer,
                           TransportPolicy policy) override;
  StatusOr<PeerInfo> Describe(PeerId peer) const override;
  void Disconnect(PeerId peer) override;
  StatusOr<SubmissionId> Submit(Batch batch, Completion completion) override;
  void Cancel(SubmissionId submission) override;
  MessengerStats stats() const override;

 private:
  struct Region {
    std::span<std::byte> memory;
    UniqueFd fd;
  };
  using PeerKey = std::tuple<std::string, uint64_t, TransportPolicy>;
  struct PeerRecord {
    PeerKey key;
    PeerInfo info;
  };
  struct Listener {
    UniqueFd fd;
    EventLoop::WatchId watch = 0;
  };

  SocketMessenger(const MessengerOptions& options,
                  std::unique_ptr<EventLoop> loop);
  Status Listen();
  Status WatchListener(Listener& listener, Transport transport);
  void AcceptAll(Listener& listener, Transport transport);
  void Adopt(UniqueFd fd, Transport transport);
  void Sweep();
  void Unregister(RegionId region) override;
  std::vector<ShareableRegion> Shareable() const;
  void AddPeer(PeerId id, LinkConfig config);
  void AddBatch(std::unique_ptr<OutboundBatch> batch);
  // Ends a batch that no peer took.
  void Drop(OutboundBatch& batch);

  const MessengerOptions options_;
  std::string address_;
  const std::unique_ptr<EventLoop> loop_;
  Counters counters_;
  GrantTable grants_;
  InboundContext inbound_context_;
  std::atomic<uint64_t> next_id_ = 1;  // of regions, peers and submissions

  mutable Mutex mutex_;
  std::unordered_map<RegionId, Region> regions_ ABSL_GUARDED_BY(mutex_);
  std::map<PeerKey, PeerId> peer_ids_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<PeerId, PeerRecord> peer_records_ ABSL_GUARDED_BY(mutex_);

  // Confined to the loop's thread.
  Listener tcp_listener_, shm_listener_;
  std::unordered_map<const InboundConnection*,
                     std::unique_ptr<InboundConnection>>
      inbound_;
  std::unordered_map<PeerId, std::unique_ptr<OutboundPeer>> peers_;

  std::thread thread_;
};

}  // namespace tidepool::transfer::internal
