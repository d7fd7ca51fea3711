// The source's end of one connection, from connecting to its loss.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"
#include "dataplane/transfer/event_loop.h"
#include "dataplane/transfer/frame_io.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/transfer/socket.h"
#include "dataplane/transfer/wire.h"

namespace tidepool::transfer::internal {

// Memory of ours that a peer on this host may map.
struct ShareableRegion {
  RegionId id = 0;
  uint64_t bytes = 0;
  int fd = -1;  // borrowed
};

struct LinkConfig {
  SocketAddress address;
  PeerAddress peer;
  TransportPolicy policy = TransportPolicy::kAuto;
  uint64_t own_incarnation = 0;
  std::string boot_id;
  Duration hello_timeout, stall_timeout;
  std::function<std::vector<ShareableRegion>()> shareable;
};

// Says hello over TCP; if the policy allows, and the peer is on this host and
// maps our memory, moves on to a unix socket and shm. Confined to the loop's
// thread.
class OutboundLink {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnLinkReady(Transport transport, std::string reason) = 0;
    virtual void OnLinkWritable() = 0;
    virtual void OnAck(const Ack& ack) = 0;
    // At most once, the last call. `permanent`: trying again is pointless.
    // The link must outlive the call.
    virtual void OnLinkLost(const Status& reason, bool permanent) = 0;
  };

  OutboundLink(EventLoop& loop, LinkConfig config, Owner& owner)
      : loop_(loop), config_(std::move(config)), owner_(owner) {}
  ~OutboundLink();

  // May call OnLinkLost.
  void Start();

  bool ready() const { return state_ == State::kReady; }
  Transport transport() const { return transport_; }
  // No frame waits to be sent.
  bool drained() const { return writer_.empty(); }

  // Only while ready. Send may call OnLinkLost. OnLinkWritable is called, from
  // the loop, once what was sent has left or RequestTurn was called.
  void Send(OutgoingFrame frame);
  void RequestTurn();
  // Makes `region` known to the peer (shm), once. False if it is not
  // shareable.
  bool Offer(RegionId region);
  // The memory of frames with `tag` must not be read again.
  void Withdraw(uint64_t tag) { writer_.Withdraw(tag); }

 private:
  enum class State {
    kIdle,
    kConnecting,   // TCP handshake
    kGreeting,     // hello sent
    kShmGreeting,  // hello sent over the unix socket
    kOffering,     // the peer is mapping our regions
    kReady,
    kLost,
  };

  void OnReady();
  Status FlushAndRead();
  Status HandleFrame();
  Status HandleWelcome();
  Status HandleMapped();
  void ChooseTransport(const Welcome& welcome);
  Status TryShm(const Welcome& welcome);
  Status Use(UniqueFd fd);
  void SendHello();
  void PushOffer(const ShareableRegion& region);
  void BecomeReady(Transport transport, std::string reason);
  void ShmFailed(const Status& why);
  void UpdateEvents();
  void Lose(const Status& reason, bool permanent = false);

  EventLoop& loop_;
  const LinkConfig config_;
  Owner& owner_;
  State state_ = State::kIdle;
  Transport transport_ = Transport::kTcp;
  UniqueFd fd_;
  UniqueFd tcp_fd_;  // kept while shm is tried
  EventLoop::WatchId watch_ = 0;
  std::optional<EventLoop::TimerId> handshake_timer_;
  FrameReader reader_;
  FrameWriter writer_;
  bool turn_requested_ = false;
  std::unordered_set<RegionId> offered_;
  size_t unanswered_offers_ = 0;
};

}  // namespace tidepool::transfer::internal
