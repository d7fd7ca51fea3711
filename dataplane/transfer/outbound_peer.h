// What waits to be sent to one peer, over as many connections as it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "dataplane/transfer/counters.h"
#include "dataplane/transfer/event_loop.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/transfer/outbound_link.h"

namespace tidepool::transfer::internal {

struct OutboundBatch {
  SubmissionId id = 0;
  Batch batch;
  Completion completion;
  const std::byte* memory = nullptr;  // of the local region

  // Slices whose code is kUnknown are open. `next`: the first that was not
  // sent over the current connection.
  BatchResult result;
  size_t next = 0, open = 0;
  std::optional<EventLoop::TimerId> deadline_timer;
};

// Confined to the loop's thread.
class OutboundPeer : public OutboundLink::Owner {
 public:
  OutboundPeer(EventLoop& loop, Counters& counters,
               const MessengerOptions& options, LinkConfig config,
               std::function<void(const PeerInfo&)> on_info);
  ~OutboundPeer() override;

  // Connects unless it does already.
  void Connect();
  void Add(std::unique_ptr<OutboundBatch> batch);
  // False if no such batch is open.
  bool End(SubmissionId id, Code code);
  void EndRegion(RegionId region);

 private:
  void OnLinkReady(Transport transport, std::string reason) override;
  void OnLinkWritable() override { Pump(); }
  void OnAck(const Ack& ack) override;
  void OnLinkLost(const Status& reason, bool permanent) override;

  void Pump();
  OutboundBatch* NextToSend();
  OutgoingFrame BuildFrame(OutboundBatch& batch);
  void Settle(OutboundBatch& batch, size_t slice, Code code);
  // Settles what is open of a batch, or of all of them.
  void EndBatch(OutboundBatch& batch, const Status& why);
  void EndAll(const Status& why);
  Status ErrorOf(Code code) const;
  // All slices are settled.
  void Finish(OutboundBatch& batch, const Status& why);
  void Report(bool connected, std::string reason);

  EventLoop& loop_;
  Counters& counters_;
  const MessengerOptions& options_;
  const LinkConfig config_;
  const std::function<void(const PeerInfo&)> on_info_;

  std::unique_ptr<OutboundLink> link_;
  std::optional<EventLoop::TimerId> retry_timer_;
  uint32_t failures_ = 0;  // in a row, without an acknowledgement between
  PeerInfo info_;
  std::map<SubmissionId, std::unique_ptr<OutboundBatch>> batches_;
  std::set<SubmissionId> unsent_;  // of batches_, may have slices to send
  size_t unacknowledged_ = 0;      // slices sent over this link
};

}  // namespace tidepool::transfer::internal
