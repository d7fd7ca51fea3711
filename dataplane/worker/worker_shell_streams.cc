#include "dataplane/worker/worker_shell_streams.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tidepool::worker {
namespace {

// Ends a batch whatever happens; the core gives up on a request earlier.
constexpr Duration kBatchTimeout = std::chrono::seconds(60);
constexpr size_t kMaxPeers = 512;

uint32_t MillisecondsUntil(TimePoint time, TimePoint now) {
  const auto left =
      std::chrono::floor<std::chrono::milliseconds>(time - now).count();
  return static_cast<uint32_t>(
      std::clamp<int64_t>(left, 0, std::numeric_limits<uint32_t>::max()));
}

StatusOr<transfer::Capability> CapabilityOf(
    const wire::TransferCapability& capability, TimePoint now) {
  transfer::Capability result{
      .id = capability.capability_id(),
      .incarnation = capability.incarnation(),
      .generation = capability.generation(),
      .window = {.region = capability.region(),
                 .page_ids = {capability.page_ids().begin(),
                              capability.page_ids().end()},
                 .num_layers = capability.num_layers(),
                 .layer_stride_bytes = capability.layer_stride_bytes(),
                 .slice_bytes = capability.slice_bytes()},
      .expiry = now + std::chrono::milliseconds(capability.expires_in_ms())};
  if (capability.mac().size() != result.mac.size())
    return InvalidArgument("capability.mac: {} bytes", capability.mac().size());
  std::ranges::copy(std::as_bytes(std::span(capability.mac())),
                    result.mac.begin());
  return result;
}

}  // namespace

StatusOr<wire::TransferCapability> MemoryGrants::Grant(
    const GrantCapability& grant, TimePoint now) {
  ASSIGN_OR_RETURN(
      const transfer::Capability capability,
      messenger_.Grant(
          {.region = region_,
           .page_ids = {grant.pages.begin(), grant.pages.end()},
           .num_layers = static_cast<uint32_t>(layout_.num_layers),
           .layer_stride_bytes = static_cast<uint64_t>(num_pages_) *
                                 static_cast<uint64_t>(layout_.slice_bytes()),
           .slice_bytes = static_cast<uint64_t>(layout_.slice_bytes())},
          grant.expiry));
  capabilities_[grant.grant] = capability.id;

  wire::TransferCapability message;
  message.set_capability_id(capability.id);
  message.set_incarnation(capability.incarnation);
  message.set_region(capability.window.region);
  message.set_generation(capability.generation);
  message.mutable_page_ids()->Assign(capability.window.page_ids.begin(),
                                     capability.window.page_ids.end());
  message.set_num_layers(capability.window.num_layers);
  message.set_layer_stride_bytes(capability.window.layer_stride_bytes);
  message.set_slice_bytes(capability.window.slice_bytes);
  message.set_expires_in_ms(MillisecondsUntil(grant.expiry, now));
  message.set_mac(capability.mac.data(), capability.mac.size());
  return message;
}

void MemoryGrants::Revoke(GrantId grant,
                          std::function<void(const transfer::Received&)> done) {
  const auto node = capabilities_.extract(grant);
  messenger_.Revoke(
      node.empty() ? 0 : node.mapped(),
      [done = std::move(done)](const StatusOr<transfer::Received>& received) {
        done(received.ok() ? *received : transfer::Received{});
      });
}

StreamSender::StreamSender(transfer::Messenger& messenger,
                           transfer::RegionId region,
                           transfer::TransportPolicy policy,
                           const engine::KvLayout& layout, int32_t num_pages,
                           Handlers handlers)
    : messenger_(messenger),
      region_(region),
      policy_(policy),
      layout_(layout),
      num_pages_(num_pages),
      handlers_(std::move(handlers)),
      streamer_(layout.num_layers) {}

void StreamSender::StartStep(std::vector<StreamPages> pages) {
  const MutexLock lock(&mutex_);
  streamer_.StartStep(std::move(pages));
}

void StreamSender::FinishStep(bool ok) {
  const MutexLock lock(&mutex_);
  streamer_.FinishStep(ok);
}

void StreamSender::OnLayer(int32_t layer) {
  std::vector<SliceSubmission> ready;
  {
    const MutexLock lock(&mutex_);
    streamer_.OnLayer(layer, ready);
  }
  SubmitAll(std::move(ready));
}

void StreamSender::AddFinal(StreamPages pages) {
  std::vector<SliceSubmission> ready;
  {
    const MutexLock lock(&mutex_);
    streamer_.AddFinal(std::move(pages), ready);
  }
  SubmitAll(std::move(ready));
}

// A peer that was restarted replaces the one it was, and the least recently
// used goes when there are too many: what still runs to it fails, and its
// requests are tried elsewhere.
StatusOr<transfer::PeerId> StreamSender::PeerFor(const StreamTarget& target) {
  const transfer::PeerAddress address{
      .address = target.transfer_address,
      .incarnation = target.capability.incarnation()};
  std::vector<transfer::PeerId> dropped;
  {
    const MutexLock lock(&mutex_);
    const auto found = peers_.find(address.address);
    if (found != peers_.end() &&
        found->second.incarnation == address.incarnation) {
      found->second.last_used = ++uses_;
      return found->second.id;
    }
    const auto drop = [&](std::map<std::string, Peer>::iterator peer)
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                            dropped.push_back(peer->second.id);
                            peers_.erase(peer);
                          };
    if (found != peers_.end()) drop(found);
    if (peers_.size() >= kMaxPeers)
      drop(std::ranges::min_element(peers_, {}, [](const auto& entry) {
        return entry.second.last_used;
      }));
  }
  for (const transfer::PeerId id : dropped) messenger_.Disconnect(id);
  ASSIGN_OR_RETURN(const transfer::PeerId id,
                   messenger_.Connect(address, policy_));
  const MutexLock lock(&mutex_);
  peers_[address.address] = {
      .id = id, .incarnation = address.incarnation, .last_used = ++uses_};
  return id;
}

void StreamSender::Open(std::shared_ptr<const StreamTarget> target) {
  Stream stream;
  auto capability = CapabilityOf(target->capability, Clock::Monotonic().Now());
  auto peer = capability.ok() ? PeerFor(*target) : capability.status();
  if (peer.ok()) {
    stream.peer = *peer;
    stream.capability =
        std::make_shared<transfer::Capability>(*std::move(capability));
  } else {
    stream.failed = peer.status();
  }
  std::vector<SliceSubmission> ready;
  {
    const MutexLock lock(&mutex_);
    streams_[target->stream] = std::move(stream);
    streamer_.Open(std::move(target), ready);
  }
  SubmitAll(std::move(ready));
}

void StreamSender::Close(StreamId stream) {
  std::set<transfer::SubmissionId> cancelled;
  bool closed;
  {
    const MutexLock lock(&mutex_);
    closed = streamer_.Close(stream);
    const auto found = streams_.find(stream);
    if (found != streams_.end()) {
      cancelled = found->second.submissions;
      found->second.failed =
          MakeError(Code::kCancelled, "the stream is closed");
    }
    if (closed) streams_.erase(stream);
  }
  for (const transfer::SubmissionId id : cancelled) messenger_.Cancel(id);
  if (closed) handlers_.on_closed(stream);
}

void StreamSender::SubmitAll(std::vector<SliceSubmission> submissions) {
  for (SliceSubmission& submission : submissions) Submit(std::move(submission));
}

void StreamSender::Submit(SliceSubmission submission) {
  const std::shared_ptr<const StreamTarget> keep = submission.target;
  const StreamTarget& target = *keep;
  transfer::Batch batch{.local_region = region_,
                        .deadline = Clock::Monotonic().Now() + kBatchTimeout};
  const auto row = static_cast<uint32_t>(target.capability.page_ids_size());
  batch.slices.reserve(submission.num_slices());
  for (int32_t layer = submission.layer_begin; layer < submission.layer_end;
       ++layer) {
    for (uint32_t k = 0; k < submission.pages.size(); ++k)
      batch.slices.push_back(
          {.extent =
               static_cast<uint32_t>(layer) * row + submission.extent_begin + k,
           .local_offset = static_cast<uint64_t>(
               layout_.SliceOffset(layer, submission.pages[k], num_pages_))});
  }
  const auto sending =
      std::make_shared<Sending>(Sending{.submission = std::move(submission)});
  Status failed;
  {
    // Held while submitting, so that neither the completion nor Close can come
    // before the submission is known. The messenger calls nobody back from
    // Submit.
    const MutexLock lock(&mutex_);
    Stream& stream = streams_.at(target.stream);
    failed = stream.failed;
    if (failed.ok()) {
      batch.peer = stream.peer;
      batch.capability = stream.capability;
      const auto id = messenger_.Submit(
          std::move(batch),
          [this, sending](const transfer::BatchResult& result) {
            Complete(*sending, result);
          });
      if (id.ok()) {
        sending->id = *id;
        stream.submissions.insert(*id);
        return;
      }
      failed = id.status();
    }
  }
  Complete(*sending, {.status = failed});
}

void StreamSender::Complete(const Sending& sending,
                            const transfer::BatchResult& result) {
  const SliceSubmission& submission = sending.submission;
  SlicesSent sent{.stream = submission.target->stream,
                  .layer_begin = submission.layer_begin,
                  .layer_end = submission.layer_end,
                  .extent_begin = submission.extent_begin,
                  .ok = result.status.ok(),
                  .error = std::string(MessageOf(result.status))};
  sent.checksums.reserve(result.slices.size());
  for (const transfer::SliceResult& slice : result.slices)
    sent.checksums.push_back(slice.checksum);
  const StreamId stream = sent.stream;
  bool closed;
  {
    const MutexLock lock(&mutex_);
    Stream& ended = streams_.at(stream);
    ended.submissions.erase(sending.id);
    const auto info = messenger_.Describe(ended.peer);
    if (info.ok() && info->transport)
      sent.transport = transfer::TransportName(*info->transport);
    closed = streamer_.Complete(stream);
    if (closed) streams_.erase(stream);
  }
  handlers_.on_sent(std::move(sent));
  if (closed) handlers_.on_closed(stream);
}

}  // namespace tidepool::worker
