#include "dataplane/transfer/inbound_connection.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "dataplane/base/checked_math.h"
#include "dataplane/base/digest.h"
#include "dataplane/base/log.h"
#include "dataplane/transfer/socket.h"

namespace tidepool::transfer::internal {
namespace {

// Moved per turn before other connections get theirs.
constexpr uint64_t kTurnBytes = 4 << 20;
constexpr size_t kMaxQueuedReplies = 64;
constexpr size_t kMaxVectors = 32;

// Where bytes go that must not land; never read.
std::span<std::byte> Discarded() {
  thread_local std::array<std::byte, 64 << 10> scratch;
  return scratch;
}

}  // namespace

InboundConnection::InboundConnection(InboundContext& context, UniqueFd fd,
                                     Transport transport)
    : context_(context),
      fd_(std::move(fd)),
      transport_(transport),
      last_progress_(Clock::Monotonic().Now()) {
  ++context_.counters.inbound_connections;
}

InboundConnection::~InboundConnection() {
  if (fd_) context_.loop.Unwatch(watch_);
  --context_.counters.inbound_connections;
}

Status InboundConnection::Start() {
  if (transport_ == Transport::kTcp) {
    SetNoDelay(fd_.get());
  } else if (!PeerIsSameUser(fd_.get())) {
    fd_.Reset();
    return MakeError(Code::kPermissionDenied,
                     "shm connection: from another user");
  }
  auto watch =
      context_.loop.Watch(fd_.get(), EPOLLIN, [this](uint32_t) { OnReady(); });
  if (!watch.ok()) {
    fd_.Reset();
    return watch.status();
  }
  watch_ = *watch;
  return OkStatus();
}

void InboundConnection::CloseIfStuck(TimePoint now) {
  if (!fd_) return;
  const MessengerOptions& options = context_.options;
  const bool busy = landing_ || reader_.partial() || !writer_.empty();
  const Duration limit = !greeted_ ? options.hello_timeout
                         : busy    ? options.stall_timeout
                                   : options.idle_timeout;
  if (now - last_progress_ >= limit)
    Close(DeadlineExceeded("connection: no progress"));
}

void InboundConnection::OnReady() {
  uint64_t budget = kTurnBytes;
  while (true) {
    if (const auto flushed = writer_.Flush(fd_.get()); !flushed.ok())
      return Close(flushed.status());
    if (budget == 0 || OnlyAcknowledges()) break;
    const uint64_t before = budget;
    const StatusOr<bool> more = Step(budget);
    if (!more.ok()) return Close(more.status());
    // Part of a slice is progress, too.
    if (budget < before) last_progress_ = Clock::Monotonic().Now();
    if (!*more) break;
  }
  if (const auto flushed = writer_.Flush(fd_.get()); !flushed.ok())
    return Close(flushed.status());
  UpdateEvents();
}

// A peer that does not read its replies gets nothing else done.
bool InboundConnection::OnlyAcknowledges() const {
  return writer_.size() >= kMaxQueuedReplies;
}

void InboundConnection::UpdateEvents() {
  const bool copying = landing_ && transport_ == Transport::kShm;
  uint32_t events = 0;
  if (!copying && !OnlyAcknowledges()) events |= EPOLLIN;
  // Copying needs no event of the socket, only its next turn: asking for
  // writability gives it one.
  if (copying || !writer_.empty()) events |= EPOLLOUT;
  context_.loop.SetEvents(watch_, events);
}

StatusOr<bool> InboundConnection::Step(uint64_t& budget) {
  if (landing_ && transport_ == Transport::kTcp) return Receive(budget);
  if (landing_) {
    RETURN_IF_ERROR(Copy(budget));
    return true;
  }
  ASSIGN_OR_RETURN(const bool whole, reader_.Poll(fd_.get()));
  if (!whole) return false;
  budget -= std::min<uint64_t>(budget, kHeaderBytes + reader_.head().size());
  RETURN_IF_ERROR(HandleFrame());
  return true;
}

Status InboundConnection::HandleFrame() {
  const FrameType type = reader_.header().type;
  if (!greeted_ && type != FrameType::kHello)
    return InvalidArgument("connection: no hello");
  switch (type) {
    case FrameType::kHello:
      return HandleHello();
    case FrameType::kRegion:
      return HandleRegion();
    case FrameType::kWrite:
      if (transport_ != Transport::kTcp) break;
      return BeginLanding();
    case FrameType::kCopy:
      if (transport_ != Transport::kShm) break;
      return BeginLanding();
    case FrameType::kGoodbye:
      return Unavailable("connection: the peer said goodbye");
    default:
      break;
  }
  return InvalidArgument("connection: unexpected frame of type {}",
                         static_cast<int>(type));
}

Status InboundConnection::HandleHello() {
  if (greeted_) return InvalidArgument("connection: second hello");
  ASSIGN_OR_RETURN(const Hello hello, ParseHello(reader_.head()));
  const uint64_t own = context_.options.incarnation;
  if (hello.receiver_incarnation != own)
    return FailedPrecondition(
        "connection: meant for incarnation {:016x}, this is {:016x}",
        hello.receiver_incarnation, own);
  greeted_ = true;
  writer_.Push({.head = Encode(Welcome{.incarnation = own,
                                       .boot_id = context_.boot_id,
                                       .shm_name = context_.shm_name})});
  return OkStatus();
}

Status InboundConnection::HandleRegion() {
  if (transport_ != Transport::kShm)
    return InvalidArgument("connection: region offered over tcp");
  ASSIGN_OR_RETURN(const RegionOffer offer, ParseRegionOffer(reader_.head()));
  RegionMapped reply{.region = offer.region};
  UniqueFd descriptor = reader_.TakeDescriptor();
  if (!descriptor) {
    reply.error = "no descriptor came with the region";
  } else if (mappings_.size() >= context_.options.max_regions) {
    reply.error = "too many regions";
  } else {
    auto mapping = PeerMapping::Map(std::move(descriptor), offer.bytes);
    if (mapping.ok()) {
      mappings_.insert_or_assign(offer.region, *std::move(mapping));
    } else {
      reply.error = MessageOf(mapping.status());
    }
  }
  writer_.Push({.head = Encode(reply)});
  return OkStatus();
}

Status InboundConnection::BeginLanding() {
  Landing landing;
  ASSIGN_OR_RETURN(landing.frame, ParseWrite(reader_.header(), reader_.head()));
  context_.grants.Admit(landing.frame, Clock::Monotonic().Now(),
                        landing.slices);
  if (std::ranges::any_of(landing.slices, [](const auto& slice) {
        return slice.target != nullptr;
      }))
    context_.on_admit(*this, landing.frame);
  landing_ = std::move(landing);
  return OkStatus();
}

StatusOr<bool> InboundConnection::Receive(uint64_t& budget) {
  while (landing_ && budget > 0) {
    ASSIGN_OR_RETURN(const bool more, ReceiveOnce(budget));
    if (!more) return false;
  }
  return true;
}

StatusOr<bool> InboundConnection::ReceiveOnce(uint64_t& budget) {
  Landing& landing = *landing_;
  const uint64_t slice_bytes = landing.frame.slice_bytes;
  std::array<iovec, kMaxVectors> vectors;
  int count = 0;
  uint64_t offset = landing.offset;
  for (size_t i = landing.index;
       i < landing.slices.size() && count < static_cast<int>(kMaxVectors);
       ++i) {
    const uint64_t left = slice_bytes - offset;
    if (std::byte* target = landing.slices[i].target; target != nullptr) {
      vectors[count++] = {target + offset, left};
    } else {
      const std::span<std::byte> scratch = Discarded();
      const uint64_t step = std::min<uint64_t>(left, scratch.size());
      vectors[count++] = {scratch.data(), step};
      if (step < left) break;  // the rest of it first
    }
    offset = 0;
  }
  const ssize_t result = readv(fd_.get(), vectors.data(), count);
  if (result < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  if (result < 0)
    return Unavailable("connection: {}", MessageOf(ErrnoError(errno, "read")));
  if (result == 0) return Unavailable("connection: closed within a frame");

  auto got = static_cast<uint64_t>(result);
  budget -= std::min(budget, got);
  while (got > 0) {
    const uint64_t step = std::min(got, slice_bytes - landing.offset);
    landing.offset += step;
    got -= step;
    if (landing.offset < slice_bytes) break;
    Verify(landing.index);
    landing.offset = 0;
    ++landing.index;
  }
  if (landing.index == landing.slices.size()) FinishLanding();
  return true;
}

Status InboundConnection::Copy(uint64_t& budget) {
  Landing& landing = *landing_;
  while (landing.index < landing.slices.size() && budget > 0) {
    const size_t i = landing.index++;
    if (landing.slices[i].target == nullptr) continue;
    const Code code =
        CopySlice(landing.frame.slices[i], landing.slices[i].target);
    if (code == Code::kOk) {
      Verify(i);
    } else {
      Refuse(i, code);
    }
    budget -= std::min(budget, landing.frame.slice_bytes);
  }
  if (landing.index == landing.slices.size()) FinishLanding();
  return OkStatus();
}

Code InboundConnection::CopySlice(const WireSlice& slice, std::byte* target) {
  const auto mapping = mappings_.find(landing_->frame.source_region);
  if (mapping == mappings_.end()) return Code::kFailedPrecondition;
  const std::span<const std::byte> source = mapping->second.memory();
  const uint64_t bytes = landing_->frame.slice_bytes;
  const auto end = CheckedAdd(slice.source_offset, bytes);
  if (!end || *end > source.size()) return Code::kOutOfRange;
  std::memcpy(target, source.data() + slice.source_offset, bytes);
  return Code::kOk;
}

void InboundConnection::Refuse(size_t index, Code code) {
  landing_->slices[index] = {.code = code, .target = nullptr};
}

// Reads back what landed, so that what the sender saw, what was moved and what
// lies in memory are known to be the same.
void InboundConnection::Verify(size_t index) {
  Landing& landing = *landing_;
  GrantTable::Admission& admission = landing.slices[index];
  if (admission.target == nullptr) return;
  const WireSlice& slice = landing.frame.slices[index];
  const uint64_t bytes = landing.frame.slice_bytes;
  if (Checksum64({admission.target, bytes}) != slice.checksum) {
    ++context_.counters.corrupt_slices;
    Refuse(index, Code::kDataLoss);
    return;
  }
  context_.grants.Record(landing.frame.capability, slice.extent,
                         slice.checksum);
  (transport_ == Transport::kTcp ? context_.counters.received_bytes_tcp
                                 : context_.counters.received_bytes_shm) +=
      bytes;
}

void InboundConnection::FinishLanding() {
  Ack ack{.batch = landing_->frame.batch,
          .first_slice = landing_->frame.first_slice};
  ack.codes.reserve(landing_->slices.size());
  for (const GrantTable::Admission& slice : landing_->slices) {
    ack.codes.push_back(slice.code);
    if (slice.code != Code::kOk) ++context_.counters.refused_slices;
  }
  writer_.Push({.head = Encode(ack)});
  landing_.reset();
}

void InboundConnection::Discard(uint64_t capability) {
  if (!landing_ || landing_->frame.capability != capability) return;
  for (size_t i = landing_->index; i < landing_->slices.size(); ++i) {
    if (landing_->slices[i].target != nullptr)
      Refuse(i, Code::kFailedPrecondition);
  }
}

void InboundConnection::Supersede(const WriteHead& newer) {
  if (!landing_ || landing_->frame.capability != newer.capability) return;
  for (size_t i = landing_->index; i < landing_->slices.size(); ++i) {
    const uint32_t extent = landing_->frame.slices[i].extent;
    // Extents of a frame increase.
    if (std::ranges::binary_search(newer.slices, extent, {},
                                   &WireSlice::extent) &&
        landing_->slices[i].target != nullptr)
      Refuse(i, Code::kAborted);
  }
}

void InboundConnection::Close(const Status& reason) {
  if (!fd_) return;
  if (reason.code() != Code::kUnavailable) {
    ++context_.counters.rejected_connections;
    LOG_DEBUG("transfer: closing an inbound {} connection: {}",
              TransportName(transport_), MessageOf(reason));
    // Whether the peer takes it is its own affair. In the middle of another
    // frame it could not be read as one.
    if (writer_.empty()) {
      writer_.Push(
          {.head = Encode(Goodbye{.code = reason.code(),
                                  .message = std::string(MessageOf(reason))})});
      (void)writer_.Flush(fd_.get());
    }
  }
  context_.loop.Unwatch(watch_);
  fd_.Reset();
  landing_.reset();
  mappings_.clear();
  context_.on_closed(*this);
}

}  // namespace tidepool::transfer::internal
