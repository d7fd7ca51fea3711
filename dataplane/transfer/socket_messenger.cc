#include "dataplane/transfer/socket_messenger.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"
#include "dataplane/base/log.h"
#include "dataplane/base/notification.h"
#include "dataplane/base/random.h"
#include "dataplane/transfer/socket.h"

namespace tidepool::transfer {
namespace internal {
SocketMessenger::SocketMessenger(const MessengerOptions& options,
                                 std::unique_ptr<EventLoop> loop)
    : options_(options),
      loop_(std::move(loop)),
      grants_(options.incarnation, options.max_grants,
              options.max_extents_per_grant),
      inbound_context_{
          .loop = *loop_,
          .grants = grants_,
          .counters = counters_,
          .options = options_,
          .boot_id = BootId(),
          .on_admit =
              [this](const InboundConnection& writer, const WriteHead& frame) {
                for (const auto& [key, connection] : inbound_)
                  if (key != &writer) connection->Supersede(frame);
              },
          .on_closed =
              [this](const InboundConnection& connection) {
                // It is still on the stack.
                loop_->Post([this, key = &connection] { inbound_.erase(key); });
              },
      } {}

StatusOr<std::unique_ptr<Messenger>> SocketMessenger::Create(
    const MessengerOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create());
  std::unique_ptr<SocketMessenger> messenger(
      new SocketMessenger(options, std::move(loop)));
  RETURN_IF_ERROR(messenger->Listen());
  messenger->Sweep();
  messenger->thread_ =
      std::thread([loop = messenger->loop_.get()] { loop->Run(); });
  return messenger;
}

Status SocketMessenger::Listen() {
  auto tcp = ListenTcp(options_.host, options_.port);
  if (!tcp.ok()) return Annotate(tcp.status(), "transfer");
  tcp_listener_.fd = *std::move(tcp);
  ASSIGN_OR_RETURN(const SocketAddress bound,
                   BoundAddress(tcp_listener_.fd.get()));
  address_ = ToText(bound);
  RETURN_IF_ERROR(WatchListener(tcp_listener_, Transport::kTcp));

  inbound_context_.shm_name = fmt::format("tidepool-transfer-{:016x}{:016x}",
                                          SystemRandom64(), SystemRandom64());
  auto shm = ListenAbstract(inbound_context_.shm_name);
  if (!shm.ok()) return Annotate(shm.status(), "transfer: shm listener");
  shm_listener_.fd = *std::move(shm);
  return WatchListener(shm_listener_, Transport::kShm);
}

Status SocketMessenger::WatchListener(Listener& listener, Transport transport) {
  ASSIGN_OR_RETURN(listener.watch,
                   loop_->Watch(listener.fd.get(), EPOLLIN,
                                [this, &listener, transport](uint32_t) {
                                  AcceptAll(listener, transport);
                                }));
  return OkStatus();
}

void SocketMessenger::AcceptAll(Listener& listener, Transport transport) {
  constexpr int kAcceptsPerTurn = 64;
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = Accept(listener.fd.get());
    if (accepted.status().code() == Code::kResourceExhausted) {
      // Without descriptors the listener would stay ready and spin.
      LOG_ERROR("transfer: {}", MessageOf(accepted.status()));
      loop_->SetEvents(listener.watch, 0);
      loop_->RunAt(
          Clock::Monotonic().Now() + std::chrono::milliseconds(100),
          [this, watch = listener.watch] { loop_->SetEvents(watch, EPOLLIN); });
    }
    if (!accepted.ok()) return;
    Adopt(*std::move(accepted), transport);
  }
}

void SocketMessenger::Adopt(UniqueFd fd, Transport transport) {
  if (inbound_.size() >= options_.max_inbound_connections) {
    ++counters_.rejected_connections;
    return;  // closes it
  }
  auto connection = std::make_unique<InboundConnection>(
      inbound_context_, std::move(fd), transport);
  if (Status status = connection->Start(); !status.ok()) {
    ++counters_.rejected_connections;
    LOG_DEBUG("transfer: {}", MessageOf(status));
    return;
  }
  const InboundConnection* key = connection.get();
  inbound_.emplace(key, std::move(connection));
}

void SocketMessenger::Sweep() {
  const TimePoint now = Clock::Monotonic().Now();
  for (const auto& [key, connection] : inbound_) connection->CloseIfStuck(now);
  const Duration shortest = std::min(
      {options_.hello_timeout, options_.stall_timeout, options_.idle_timeout});
  loop_->RunAt(now + shortest / 2, [this] { Sweep(); });
}

SocketMessenger::~SocketMessenger() {
  if (!thread_.joinable()) return;  // never started
  loop_->Post([this] {
    peers_.clear();
    loop_->Stop();
  });
  thread_.join();
  inbound_.clear();
}

StatusOr<MemoryRegion> SocketMessenger::RegisterMemory(
    std::span<std::byte> memory, int shared_fd) {
  if (memory.empty()) return InvalidArgument("register memory: it is empty");
  UniqueFd fd;
  if (shared_fd >= 0) {
    fd.Reset(fcntl(shared_fd, F_DUPFD_CLOEXEC, 0));
    if (!fd) return ErrnoError(errno, "register memory: shared_fd");
  }
  const MutexLock lock(&mutex_);
  if (regions_.size() >= options_.max_regions)
    return ResourceExhausted("register memory: {} regions already",
                             options_.max_regions);
  const RegionId id = next_id_++;
  regions_[id] = {.memory = memory, .fd = std::move(fd)};
  return MemoryRegion(*this, id);
}

void SocketMessenger::Unregister(RegionId region) {
  CHECK(!loop_->OnLoopThread());
  UniqueFd fd;
  {
    const MutexLock lock(&mutex_);
    fd = std::move(regions_.at(region).fd);
    regions_.erase(region);
  }
  Notification unused;
  loop_->Post([&] {
    for (const uint64_t capability : grants_.RemoveRegion(region))
      for (const auto& [key, connection] : inbound_)
        connection->Discard(capability);
    for (const auto& [id, peer] : peers_) peer->EndRegion(region);
    unused.Notify();
  });
  unused.Wait();
}

std::vector<ShareableRegion> SocketMessenger::Shareable() const {
  const MutexLock lock(&mutex_);
  std::vector<ShareableRegion> shareable;
  for (const auto& [id, region] : regions_) {
    if (region.fd)
      shareable.push_back(
          {.id = id, .bytes = region.memory.size(), .fd = region.fd.get()});
  }
  return shareable;
}

StatusOr<Capability> SocketMessenger::Grant(const Window& window,
                                            TimePoint expiry) {
  // Held until the grant is in the table: a region is unregistered only with
  // all of its grants.
  const MutexLock lock(&mutex_);
  const auto region = regions_.find(window.region);
  if (region == regions_.end())
    return NotFound("grant: no region {}", window.region);
  return grants_.Add(region->second.memory, window, expiry);
}

void SocketMessenger::Revoke(uint64_t capability_id, RevokeDone done) {
  loop_->Post([this, capability_id, done = std::move(done)] {
    StatusOr<Received> received = grants_.Remove(capability_id);
    for (const auto& [key, connection] : inbound_)
      connection->Discard(capability_id);
    done(std::move(received));
  });
}

StatusOr<Received> SocketMessenger::ReceivedDigest(
    uint64_t capability_id) const {
  return grants_.Digest(capability_id);
}

StatusOr<PeerId> SocketMessenger::Connect(const PeerAddress& peer,
                                          TransportPolicy policy) {
  ASSIGN_OR_RETURN(const SocketAddress address, ParseAddress(peer.address));
  LinkConfig config{.address = address,
                    .peer = peer,
                    .policy = policy,
                    .own_incarnation = options_.incarnation,
                    .boot_id = inbound_context_.boot_id,
                    .hello_timeout = options_.hello_timeout,
                    .stall_timeout = options_.stall_timeout,
                    .shareable = [this] { return Shareable(); }};
  PeerKey key(peer.address, peer.incarnation, policy);

  // Held until the peer is on its way to the loop: whoever learns its id here
  // may submit to it at once.
  const MutexLock lock(&mutex_);
  if (const auto found = peer_ids_.find(key); found != peer_ids_.end())
    return found->second;
  if (peer_ids_.size() >= options_.max_peers)
    return ResourceExhausted("connect to {}: {} peers already", peer.address,
                             options_.max_peers);
  const PeerId id = next_id_++;
  peer_ids_[key] = id;
  peer_records_[id] = {.key = std::move(key), .info = {.reason = "connecting"}};
  loop_->Post([this, id, config = std::move(config)]() mutable {
    AddPeer(id, std::move(config));
  });
  return id;
}

void SocketMessenger::AddPeer(PeerId id, LinkConfig config) {
  const auto on_info = [this, id](const PeerInfo& info) {
    const MutexLock lock(&mutex_);
    const auto record = peer_records_.find(id);
    if (record != peer_records_.end()) record->second.info = info;
  };
  auto peer = std::make_unique<OutboundPeer>(*loop_, counters_, options_,
                                             std::move(config), on_info);
  OutboundPeer& added = *peer;
  peers_[id] = std::move(peer);
  added.Connect();
}

StatusOr<PeerInfo> SocketMessenger::Describe(PeerId peer) const {
  const MutexLock lock(&mutex_);
  const auto record = peer_records_.find(peer);
  if (record == peer_records_.end()) return NotFound("no peer {}", peer);
  return record->second.info;
}

void SocketMessenger::Disconnect(PeerId peer) {
  {
    const MutexLock lock(&mutex_);
    const auto record = peer_records_.find(peer);
    if (record == peer_records_.end()) return;
    peer_ids_.erase(record->second.key);
    peer_records_.erase(record);
  }
  loop_->Post([this, peer] { peers_.erase(peer); });
}

StatusOr<SubmissionId> SocketMessenger::Submit(Batch batch,
                                               Completion completion) {
  if (batch.slices.empty() || batch.capability == nullptr)
    return InvalidArgument("submit: nothing to send");
  const uint64_t slice_bytes = batch.capability->window.slice_bytes;
  if (slice_bytes == 0 || slice_bytes > kMaxSliceBytes)
    return InvalidArgument("submit: slices of {} bytes", slice_bytes);
  auto added = std::make_unique<OutboundBatch>();
  {
    const MutexLock lock(&mutex_);
    if (!peer_records_.contains(batch.peer))
      return NotFound("submit: no peer {}", batch.peer);
    const auto region = regions_.find(batch.local_region);
    if (region == regions_.end())
      return NotFound("submit: no region {}", batch.local_region);
    const std::span<std::byte> memory = region->second.memory;
    for (const Slice& slice : batch.slices) {
      const auto end = CheckedAdd(slice.local_offset, slice_bytes);
      if (!end || *end > memory.size())
        return InvalidArgument("submit: slice at {} reaches beyond its region",
                               slice.local_offset);
    }
    added->memory = memory.data();
  }
  const uint64_t count = batch.slices.size();
  if (counters_.pending_slices.fetch_add(count) + count >
      options_.max_pending_slices) {
    counters_.pending_slices -= count;
    return ResourceExhausted("submit: {} slices are pending already",
                             counters_.pending_slices.load());
  }
  const SubmissionId id = next_id_++;
  added->id = id;
  added->batch = std::move(batch);
  added->completion = std::move(completion);
  loop_->Post([this, added = std::move(added)]() mutable {
    AddBatch(std::move(added));
  });
  return id;
}

void SocketMessenger::AddBatch(std::unique_ptr<OutboundBatch> batch) {
  bool registered;
  {
    const MutexLock lock(&mutex_);
    registered = regions_.contains(batch->batch.local_region);
  }
  const auto peer = peers_.find(batch->batch.peer);
  // Either may have gone since Submit looked.
  if (!registered || peer == peers_.end()) return Drop(*batch);
  peer->second->Add(std::move(batch));
}

void SocketMessenger::Drop(OutboundBatch& batch) {
  const size_t count = batch.batch.slices.size();
  counters_.pending_slices -= count;
  counters_.failed_slices += count;
  batch.completion(
      {.status =
           MakeError(Code::kCancelled, "transfer: its peer or memory is gone"),
       .slices = std::vector<SliceResult>(count, {.code = Code::kCancelled})});
}

void SocketMessenger::Cancel(SubmissionId submission) {
  loop_->Post([this, submission] {
    for (const auto& [id, peer] : peers_)
      if (peer->End(submission, Code::kCancelled)) return;
  });
}

MessengerStats SocketMessenger::stats() const {
  MessengerStats stats{
      .sent_bytes_tcp = counters_.sent_bytes_tcp,
      .sent_bytes_shm = counters_.sent_bytes_shm,
      .received_bytes_tcp = counters_.received_bytes_tcp,
      .received_bytes_shm = counters_.received_bytes_shm,
      .failed_slices = counters_.failed_slices,
      .refused_slices = counters_.refused_slices,
      .corrupt_slices = counters_.corrupt_slices,
      .rejected_connections = counters_.rejected_connections,
      .grants = grants_.size(),
      .inbound_connections = counters_.inbound_connections,
      .pending_slices = counters_.pending_slices,
  };
  const MutexLock lock(&mutex_);
  stats.peers = peer_records_.size();
  return stats;
}

}  // namespace internal

StatusOr<std::unique_ptr<Messenger>> CreateSocketMessenger(
    const MessengerOptions& options) {
  return internal::SocketMessenger::Create(options);
}

}  // namespace tidepool::transfer
