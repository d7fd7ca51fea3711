// Moves KV between processes: the destination grants a window of its memory,
// the source writes slices into it, both agree on a digest of what arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/transfer/capability.h"

namespace tidepool::transfer {

enum class Transport { kTcp, kShm };
// kAuto chooses shm if the peer is proven to share this host's memory (same
// boot id, and it mapped our memory), else tcp. The others insist: a peer that
// cannot be reached that way is an error, never another transport.
enum class TransportPolicy { kAuto, kTcp, kShm };

std::string_view TransportName(Transport transport);
// "auto", "tcp" or "shm". Errors: kInvalidArgument.
StatusOr<TransportPolicy> ParseTransportPolicy(std::string_view name);

using PeerId = uint64_t;
using SubmissionId = uint64_t;

class Messenger;

// Registered memory. Destroying it waits until no transfer touches the memory:
// writes granted into it are revoked, submissions out of it end as kCancelled.
// Must not be destroyed on the messenger's thread (in a completion), nor after
// the messenger.
class MemoryRegion {
 public:
  MemoryRegion() = default;
  MemoryRegion(Messenger& messenger, RegionId id)
      : messenger_(&messenger), id_(id) {}
  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;
  ~MemoryRegion();

  RegionId id() const { return id_; }

 private:
  Messenger* messenger_ = nullptr;
  RegionId id_ = 0;
};

// What has arrived in a window.
struct Received {
  uint32_t extents = 0;
  bool complete = false;
  // Checksum64 over the extents' checksums, as little-endian 64-bit numbers in
  // the order of the extents, 0 for those that have not arrived.
  uint64_t digest = 0;
};

using RevokeDone = std::function<void(StatusOr<Received>)>;

// The same digest, for the source's side. Checksums of all extents in order.
uint64_t DigestOf(std::span<const uint64_t> extent_checksums);

struct PeerAddress {
  std::string address;       // host:port of its messenger, the host in digits
  uint64_t incarnation = 0;  // which process is meant
};

struct PeerInfo {
  // Set once negotiated; kept, if the connection is lost, until negotiated
  // anew.
  std::optional<Transport> transport;
  bool connected = false;
  std::string reason;  // why this transport, or why not connected
};

// One slice of a batch: `slice_bytes` of the capability, read at
// `local_offset` of the local region, written to `extent`.
struct Slice {
  uint32_t extent = 0;
  uint64_t local_offset = 0;
};

struct Batch {
  PeerId peer = 0;
  // Shared by the batches of one handover; immutable.
  std::shared_ptr<const Capability> capability;
  RegionId local_region = 0;
  std::vector<Slice> slices;
  TimePoint deadline;
};

// kOk: written, verified and acknowledged. kPermissionDenied: no such right
// (MAC, incarnation or generation). kFailedPrecondition: unknown, revoked,
// expired, the peer cannot read this memory, or another process has its
// address. kOutOfRange: no such extent. kDataLoss: arrived damaged. kAborted:
// another write to the extent overtook it. kUnavailable: the peer cannot be
// reached. kDeadlineExceeded, kCancelled.
struct SliceResult {
  Code code = Code::kUnknown;
  uint64_t checksum = 0;  // Checksum64 of the slice as sent; valid if kOk
};

struct BatchResult {
  Status status;  // OK if all slices are, else the first error
  std::vector<SliceResult> slices;  // in the order of the batch
};

// Runs once per accepted batch, on the messenger's thread: must not block. From
// then on the messenger does not read the batch's memory again. (A peer that
// maps it may, for a batch that did not succeed; it verifies checksums and
// discards what it then finds.)
using Completion = std::function<void(BatchResult)>;

struct MessengerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0 takes a free one
  uint64_t incarnation = 0;

  // Bounds; above them calls fail with kResourceExhausted and connections are
  // refused.
  uint32_t max_regions = 16;
  uint32_t max_peers = 1024;
  uint32_t max_grants = 65536;
  uint32_t max_extents_per_grant = 1 << 22;
  uint32_t max_inbound_connections = 1024;
  uint32_t max_pending_slices = 1 << 20;  // of all batches not yet completed

  // A new connection says hello within this, or is closed.
  Duration hello_timeout = std::chrono::seconds(5);
  // A peer in the middle of a frame makes progress within this, or is closed.
  Duration stall_timeout = std::chrono::seconds(30);
  // An inbound connection without any frame for this long is closed.
  Duration idle_timeout = std::chrono::minutes(15);
  // Connecting is tried this often in a row, with doubling pauses, before what
  // waits for the peer fails; the next batch tries again.
  uint32_t connect_attempts = 3;
  Duration connect_backoff = std::chrono::milliseconds(20);
};

// Totals since the start.
struct MessengerStats {
  uint64_t sent_bytes_tcp = 0, sent_bytes_shm = 0;  // acknowledged slices
  uint64_t received_bytes_tcp = 0, received_bytes_shm = 0;  // verified slices
  uint64_t failed_slices = 0;         // completed other than kOk
  uint64_t refused_slices = 0;        // refused by us as the destination
  uint64_t corrupt_slices = 0;        // arrived here damaged
  uint64_t rejected_connections = 0;  // refused or closed for misbehaviour
  // Now.
  uint64_t grants = 0, peers = 0, inbound_connections = 0, pending_slices = 0;
};

// Source and destination of transfers. Thread-safe; no call waits for the
// network. Source: Mooncake (FAST'25) §3.2.2 (the messenger streams KV between
// nodes' memories).
class Messenger {
 public:
  virtual ~Messenger() = default;

  virtual uint64_t incarnation() const = 0;
  virtual std::string address() const = 0;  // as bound, the host in digits

  // Makes `memory` usable as source and destination until the handle is
  // destroyed. `shared_fd`, of a SharedMemory that maps exactly `memory`, lets
  // peers on this host read it; -1 for none; it is duplicated.
  // Errors: kInvalidArgument (empty), kResourceExhausted.
  virtual StatusOr<MemoryRegion> RegisterMemory(std::span<std::byte> memory,
                                                int shared_fd = -1) = 0;

  // --- Destination ---

  // Lets the holder of the result write the window's extents. After `expiry`
  // new writes are refused, yet one may still be landing: the caller keeps the
  // pages out of any other use until Revoke's `done`.
  // Errors: kInvalidArgument (window outside of the region, page named twice),
  // kNotFound (region), kResourceExhausted.
  virtual StatusOr<Capability> Grant(const Window& window,
                                     TimePoint expiry) = 0;

  // Ends a grant. `done` runs once, on the messenger's thread, when no write
  // can land any more and the pages may be used: with what had arrived by
  // then, or kNotFound if there is no such grant (any more).
  virtual void Revoke(uint64_t capability_id, RevokeDone done) = 0;

  // What has arrived so far; only Revoke gives an answer that stays true.
  // Errors: kNotFound (unknown or revoked).
  virtual StatusOr<Received> ReceivedDigest(uint64_t capability_id) const = 0;

  // --- Source ---

  // Names a peer, the same for equal arguments. The connection is made in the
  // background, and again when lost and there is something to send.
  // Errors: kInvalidArgument (address), kResourceExhausted.
  virtual StatusOr<PeerId> Connect(const PeerAddress& peer,
                                   TransportPolicy policy) = 0;
  // Errors: kNotFound.
  virtual StatusOr<PeerInfo> Describe(PeerId peer) const = 0;
  // Forgets the peer; its batches end as kCancelled.
  virtual void Disconnect(PeerId peer) = 0;

  // Queues a batch; slices are written in order, though not between batches.
  // A lost connection is made anew and what was not acknowledged is sent again
  // until the deadline. `completion` runs if and only if this succeeds.
  // Errors: kNotFound (peer, region), kInvalidArgument (empty batch, slice
  // outside of its region), kResourceExhausted (queues are full: slow down).
  virtual StatusOr<SubmissionId> Submit(Batch batch, Completion completion) = 0;

  // Ends a batch early as kCancelled; slices already acknowledged stay kOk.
  // Nothing happens if it has ended.
  virtual void Cancel(SubmissionId submission) = 0;

  virtual MessengerStats stats() const = 0;

 private:
  friend class MemoryRegion;
  virtual void Unregister(RegionId region) = 0;
};

// A messenger over TCP and, between processes of one host, shared memory. Owns
// one thread; its destructor ends what is pending as kCancelled.
// Errors: kInvalidArgument (host), kAlreadyExists (port in use), kUnavailable.
StatusOr<std::unique_ptr<Messenger>> CreateSocketMessenger(
    const MessengerOptions& options);

}  // namespace tidepool::transfer
