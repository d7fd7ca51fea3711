#include "dataplane/transfer/outbound_peer.h"

#include <algorithm>
#include <utility>

#include "dataplane/base/digest.h"
#include "dataplane/base/log.h"

namespace tidepool::transfer::internal {
namespace {

// Large enough to amortize a frame's cost, small enough that what was summed is
// still cached when it is sent, and that others get their turn.
constexpr uint64_t kFrameBytes = 512 << 10;
constexpr int kFramesPerTurn = 8;
constexpr size_t kMaxUnacknowledged = 8192;

std::string_view Describe(Code code) {
  switch (code) {
    case Code::kPermissionDenied:
      return "the capability is not valid";
    case Code::kFailedPrecondition:
      return "the capability was revoked or has expired, or the peer cannot "
             "read the memory";
    case Code::kOutOfRange:
      return "no such extent";
    case Code::kDataLoss:
      return "arrived damaged";
    case Code::kAborted:
      return "overtaken by a newer write";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kCancelled:
      return "cancelled";
    default:
      return "failed";
  }
}

}  // namespace

OutboundPeer::OutboundPeer(EventLoop& loop, Counters& counters,
                           const MessengerOptions& options, LinkConfig config,
                           std::function<void(const PeerInfo&)> on_info)
    : loop_(loop),
      counters_(counters),
      options_(options),
      config_(std::move(config)),
      on_info_(std::move(on_info)) {}

OutboundPeer::~OutboundPeer() {
  EndAll(ErrorOf(Code::kCancelled));
  if (retry_timer_) loop_.CancelTimer(*retry_timer_);
}

Status OutboundPeer::ErrorOf(Code code) const {
  return MakeError(code, "transfer to {}: {}", config_.peer.address,
                   Describe(code));
}

void OutboundPeer::Report(bool connected, std::string reason) {
  info_.connected = connected;
  info_.reason = std::move(reason);
  on_info_(info_);
}

void OutboundPeer::Connect() {
  if (link_ != nullptr || retry_timer_) return;
  unacknowledged_ = 0;
  link_ = std::make_unique<OutboundLink>(loop_, config_, *this);
  link_->Start();
}

void OutboundPeer::OnLinkReady(Transport transport, std::string reason) {
  LOG_INFO("transfer: {} over {} ({})", config_.peer.address,
           TransportName(transport), reason);
  info_.transport = transport;
  Report(true, std::move(reason));
  link_->RequestTurn();
}

void OutboundPeer::OnLinkLost(const Status& reason, bool permanent) {
  // It is still on the stack.
  loop_.Post([link = std::move(link_)] {});
  Report(false, std::string(MessageOf(reason)));
  if (batches_.empty()) {
    failures_ = 0;
    return;
  }
  ++failures_;
  if (permanent || failures_ >= options_.connect_attempts) {
    failures_ = 0;
    LOG_WARNING("transfer: {} unreachable: {}", config_.peer.address,
                MessageOf(reason));
    return EndAll(MakeError(
        permanent ? Code::kFailedPrecondition : Code::kUnavailable,
        "transfer to {}: {}", config_.peer.address, MessageOf(reason)));
  }
  for (auto& [id, batch] : batches_) {
    batch->next = 0;
    unsent_.insert(id);
  }
  const Duration pause = options_.connect_backoff * (1 << (failures_ - 1));
  retry_timer_ = loop_.RunAt(Clock::Monotonic().Now() + pause, [this] {
    retry_timer_.reset();
    Connect();
  });
}

void OutboundPeer::Add(std::unique_ptr<OutboundBatch> added) {
  OutboundBatch& batch = *added;
  const SubmissionId id = batch.id;
  batch.open = batch.batch.slices.size();
  batch.result.slices.resize(batch.open);
  batches_.emplace(id, std::move(added));
  unsent_.insert(id);
  batch.deadline_timer = loop_.RunAt(batch.batch.deadline, [this, id] {
    batches_.at(id)->deadline_timer.reset();
    End(id, Code::kDeadlineExceeded);
  });
  Connect();
  if (link_ != nullptr && link_->ready() && link_->drained())
    link_->RequestTurn();
}

bool OutboundPeer::End(SubmissionId id, Code code) {
  const auto found = batches_.find(id);
  if (found == batches_.end()) return false;
  EndBatch(*found->second, ErrorOf(code));
  return true;
}

void OutboundPeer::EndRegion(RegionId region) {
  std::vector<SubmissionId> ids;
  for (const auto& [id, batch] : batches_) {
    if (batch->batch.local_region == region) ids.push_back(id);
  }
  for (const SubmissionId id : ids) End(id, Code::kCancelled);
}

void OutboundPeer::EndAll(const Status& why) {
  while (!batches_.empty()) EndBatch(*batches_.begin()->second, why);
}

void OutboundPeer::EndBatch(OutboundBatch& batch, const Status& why) {
  if (link_ != nullptr) link_->Withdraw(batch.id);
  for (size_t i = 0; i < batch.result.slices.size(); ++i)
    Settle(batch, i, why.code());
  Finish(batch, why);
}

void OutboundPeer::Settle(OutboundBatch& batch, size_t slice, Code code) {
  SliceResult& result = batch.result.slices[slice];
  if (result.code != Code::kUnknown) return;
  result.code = code;
  --batch.open;
  if (code != Code::kOk) {
    ++counters_.failed_slices;
    return;
  }
  (link_->transport() == Transport::kTcp ? counters_.sent_bytes_tcp
                                         : counters_.sent_bytes_shm) +=
      batch.batch.capability->window.slice_bytes;
}

void OutboundPeer::Finish(OutboundBatch& batch, const Status& why) {
  const auto failed = std::ranges::find_if(
      batch.result.slices,
      [](const SliceResult& slice) { return slice.code != Code::kOk; });
  if (failed != batch.result.slices.end()) {
    const size_t index = failed - batch.result.slices.begin();
    // What was refused earlier is the first error, whatever ended the rest.
    batch.result.status =
        failed->code == why.code()
            ? why
            : MakeError(failed->code, "transfer to {}: slice {}: {}",
                        config_.peer.address, index, Describe(failed->code));
  }
  if (batch.deadline_timer) loop_.CancelTimer(*batch.deadline_timer);
  counters_.pending_slices -= batch.result.slices.size();
  unsent_.erase(batch.id);
  const auto node = batches_.extract(batch.id);
  node.mapped()->completion(std::move(node.mapped()->result));
}

void OutboundPeer::OnAck(const Ack& ack) {
  unacknowledged_ -= std::min(unacknowledged_, ack.codes.size());
  failures_ = 0;
  const auto found = batches_.find(ack.batch);
  if (found != batches_.end()) {
    OutboundBatch& batch = *found->second;
    const size_t sent = batch.next;
    for (size_t i = 0; i < ack.codes.size(); ++i) {
      const size_t slice = size_t{ack.first_slice} + i;
      if (slice < sent) Settle(batch, slice, ack.codes[i]);
    }
    if (batch.open == 0) Finish(batch, OkStatus());
  }
  if (!unsent_.empty() && link_ != nullptr) link_->RequestTurn();
}

OutboundBatch* OutboundPeer::NextToSend() {
  while (!unsent_.empty()) {
    OutboundBatch& batch = *batches_.at(*unsent_.begin());
    const auto& slices = batch.result.slices;
    while (batch.next < slices.size() &&
           slices[batch.next].code != Code::kUnknown)
      ++batch.next;
    if (batch.next < slices.size()) return &batch;
    unsent_.erase(unsent_.begin());
  }
  return nullptr;
}

void OutboundPeer::Pump() {
  for (int frames = 0; frames < kFramesPerTurn; ++frames) {
    if (link_ == nullptr || !link_->ready() || !link_->drained()) return;
    if (unacknowledged_ >= kMaxUnacknowledged) return;  // an ack resumes
    OutboundBatch* batch = NextToSend();
    if (batch == nullptr) return;
    if (link_->transport() == Transport::kShm &&
        !link_->Offer(batch->batch.local_region)) {
      End(batch->id, Code::kFailedPrecondition);
      continue;
    }
    link_->Send(BuildFrame(*batch));
  }
  if (link_ != nullptr && link_->ready()) link_->RequestTurn();
}

OutgoingFrame OutboundPeer::BuildFrame(OutboundBatch& batch) {
  const bool copy = link_->transport() == Transport::kShm;
  const Capability& capability = *batch.batch.capability;
  const uint64_t slice_bytes = capability.window.slice_bytes;
  WriteHead head{.batch = batch.id,
                 .first_slice = static_cast<uint32_t>(batch.next),
                 .capability = capability.id,
                 .incarnation = capability.incarnation,
                 .generation = capability.generation,
                 .mac = capability.mac,
                 .slice_bytes = slice_bytes,
                 .source_region = batch.batch.local_region};
  OutgoingFrame frame{.tag = batch.id};
  const size_t most =
      std::clamp<uint64_t>(kFrameBytes / slice_bytes, 1, kMaxSlicesPerFrame);
  while (head.slices.size() < most && batch.next < batch.batch.slices.size()) {
    const Slice& slice = batch.batch.slices[batch.next];
    SliceResult& result = batch.result.slices[batch.next];
    if (result.code != Code::kUnknown) break;
    if (!head.slices.empty() && slice.extent <= head.slices.back().extent)
      break;
    const std::span bytes(batch.memory + slice.local_offset, slice_bytes);
    result.checksum = Checksum64(bytes);
    head.slices.push_back({.extent = slice.extent,
                           .checksum = result.checksum,
                           .source_offset = slice.local_offset});
    if (!copy) frame.payload.push_back(bytes);
    ++batch.next;
  }
  unacknowledged_ += head.slices.size();
  frame.head = copy ? EncodeCopy(head) : EncodeWrite(head);
  return frame;
}

}  // namespace tidepool::transfer::internal
