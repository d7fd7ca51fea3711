#include "dataplane/transfer/outbound_link.h"

#include <fcntl.h>

#include <utility>

#include "dataplane/base/check.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/log.h"

namespace tidepool::transfer::internal {

OutboundLink::~OutboundLink() {
  if (fd_) loop_.Unwatch(watch_);
  if (handshake_timer_) loop_.CancelTimer(*handshake_timer_);
}

void OutboundLink::Start() {
  CHECK(state_ == State::kIdle);
  handshake_timer_ =
      loop_.RunAt(Clock::Monotonic().Now() + config_.hello_timeout, [this] {
        handshake_timer_.reset();
        Lose(DeadlineExceeded("no answer to hello in time"));
      });
  auto fd = ConnectTcp(config_.address, config_.stall_timeout);
  if (!fd.ok()) return Lose(fd.status());
  state_ = State::kConnecting;
  if (Status status = Use(*std::move(fd)); !status.ok()) Lose(status);
}

// Takes over `fd` as the connection to talk over.
Status OutboundLink::Use(UniqueFd fd) {
  if (fd_) loop_.Unwatch(watch_);
  fd_.Reset();
  reader_ = FrameReader();
  writer_ = FrameWriter();
  ASSIGN_OR_RETURN(watch_, loop_.Watch(fd.get(), EPOLLIN | EPOLLOUT,
                                       [this](uint32_t) { OnReady(); }));
  fd_ = std::move(fd);
  return OkStatus();
}

void OutboundLink::SendHello() {
  writer_.Push({.head = Encode(
                    Hello{.sender_incarnation = config_.own_incarnation,
                          .receiver_incarnation = config_.peer.incarnation})});
}

void OutboundLink::OnReady() {
  if (state_ == State::kConnecting) {
    if (Status status = ConnectResult(fd_.get()); !status.ok())
      return Lose(status);
    state_ = State::kGreeting;
    SendHello();
  }
  const Status status = FlushAndRead();
  if (state_ == State::kLost) return;
  if (!status.ok()) {
    if (state_ == State::kShmGreeting || state_ == State::kOffering)
      return ShmFailed(status);
    return Lose(status);
  }
  if (state_ == State::kReady && drained()) {
    turn_requested_ = false;
    owner_.OnLinkWritable();
    if (state_ == State::kLost) return;
  }
  UpdateEvents();
}

Status OutboundLink::FlushAndRead() {
  // Read before complaining that writing fails: a goodbye may say why.
  const StatusOr<bool> flushed = writer_.Flush(fd_.get());
  while (true) {
    ASSIGN_OR_RETURN(const bool whole, reader_.Poll(fd_.get()));
    if (!whole) break;
    RETURN_IF_ERROR(HandleFrame());
    if (state_ == State::kLost) return OkStatus();
  }
  return flushed.ok() ? OkStatus() : flushed.status();
}

Status OutboundLink::HandleFrame() {
  switch (reader_.header().type) {
    case FrameType::kWelcome:
      return HandleWelcome();
    case FrameType::kRegionMapped:
      return HandleMapped();
    case FrameType::kAck: {
      if (state_ != State::kReady) break;
      ASSIGN_OR_RETURN(const Ack ack, ParseAck(reader_.head()));
      owner_.OnAck(ack);
      return OkStatus();
    }
    case FrameType::kGoodbye: {
      ASSIGN_OR_RETURN(const Goodbye goodbye, ParseGoodbye(reader_.head()));
      return MakeError(goodbye.code, "refused by the peer: {}",
                       goodbye.message);
    }
    default:
      break;
  }
  return InvalidArgument("peer sent an unexpected frame of type {}",
                         static_cast<int>(reader_.header().type));
}

Status OutboundLink::HandleWelcome() {
  ASSIGN_OR_RETURN(const Welcome welcome, ParseWelcome(reader_.head()));
  if (welcome.incarnation != config_.peer.incarnation)
    return FailedPrecondition("peer is incarnation {:016x}, not {:016x}",
                              welcome.incarnation, config_.peer.incarnation);
  if (state_ == State::kGreeting) {
    ChooseTransport(welcome);
    return OkStatus();
  }
  if (state_ != State::kShmGreeting)
    return InvalidArgument("peer sent a second welcome");

  state_ = State::kOffering;
  for (const ShareableRegion& region : config_.shareable()) PushOffer(region);
  if (unanswered_offers_ == 0)
    return FailedPrecondition("no memory registered that can be shared");
  return OkStatus();
}

void OutboundLink::ChooseTransport(const Welcome& welcome) {
  if (config_.policy == TransportPolicy::kTcp)
    return BecomeReady(Transport::kTcp, "as configured");
  state_ = State::kShmGreeting;
  if (Status status = TryShm(welcome); !status.ok()) ShmFailed(status);
}

Status OutboundLink::TryShm(const Welcome& welcome) {
  if (config_.boot_id.empty() || welcome.boot_id != config_.boot_id)
    return FailedPrecondition("the peer is on another host");
  ASSIGN_OR_RETURN(UniqueFd fd, ConnectAbstract(welcome.shm_name));
  if (!PeerIsSameUser(fd.get()))
    return MakeError(Code::kPermissionDenied, "the peer is another user's");
  // The TCP connection waits unwatched, for auto to return to.
  loop_.Unwatch(watch_);
  tcp_fd_ = std::move(fd_);
  RETURN_IF_ERROR(Use(std::move(fd)));
  SendHello();
  return OkStatus();
}

void OutboundLink::PushOffer(const ShareableRegion& region) {
  OutgoingFrame frame{
      .head = Encode(RegionOffer{.region = region.id, .bytes = region.bytes})};
  frame.descriptor.Reset(fcntl(region.fd, F_DUPFD_CLOEXEC, 0));
  offered_.insert(region.id);
  ++unanswered_offers_;
  writer_.Push(std::move(frame));
}

Status OutboundLink::HandleMapped() {
  ASSIGN_OR_RETURN(const RegionMapped mapped,
                   ParseRegionMapped(reader_.head()));
  if (unanswered_offers_ == 0)
    return InvalidArgument("peer mapped a region that was not offered");
  --unanswered_offers_;
  if (!mapped.error.empty()) {
    // Once ready, the slices of this region alone are refused.
    LOG_WARNING("transfer: {} cannot map region {}: {}", config_.peer.address,
                mapped.region, mapped.error);
    if (state_ == State::kOffering)
      return FailedPrecondition("the peer cannot map our memory: {}",
                                mapped.error);
  }
  if (state_ == State::kOffering && unanswered_offers_ == 0) {
    tcp_fd_.Reset();
    BecomeReady(Transport::kShm, config_.policy == TransportPolicy::kShm
                                     ? "as configured"
                                     : "same host");
  }
  return OkStatus();
}

void OutboundLink::ShmFailed(const Status& why) {
  if (config_.policy == TransportPolicy::kShm)
    return Lose(Annotate(why, "shm"), false);
  if (tcp_fd_) {
    if (Status status = Use(std::move(tcp_fd_)); !status.ok())
      return Lose(status);
  }
  offered_.clear();
  unanswered_offers_ = 0;
  BecomeReady(Transport::kTcp, fmt::format("no shm: {}", MessageOf(why)));
}

void OutboundLink::BecomeReady(Transport transport, std::string reason) {
  if (handshake_timer_) loop_.CancelTimer(*handshake_timer_);
  handshake_timer_.reset();
  state_ = State::kReady;
  transport_ = transport;
  owner_.OnLinkReady(transport, std::move(reason));
}

bool OutboundLink::Offer(RegionId region) {
  if (offered_.contains(region)) return true;
  for (const ShareableRegion& shareable : config_.shareable()) {
    if (shareable.id != region) continue;
    PushOffer(shareable);
    return true;
  }
  return false;
}

void OutboundLink::Send(OutgoingFrame frame) {
  CHECK(state_ == State::kReady);
  writer_.Push(std::move(frame));
  if (const auto flushed = writer_.Flush(fd_.get()); !flushed.ok())
    return Lose(flushed.status());
  UpdateEvents();
}

void OutboundLink::RequestTurn() {
  turn_requested_ = true;
  UpdateEvents();
}

void OutboundLink::UpdateEvents() {
  const bool wants_to_write =
      !writer_.empty() || turn_requested_ || state_ == State::kConnecting;
  loop_.SetEvents(watch_, wants_to_write ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void OutboundLink::Lose(const Status& reason, bool permanent) {
  if (state_ == State::kLost) return;
  state_ = State::kLost;
  if (handshake_timer_) loop_.CancelTimer(*handshake_timer_);
  handshake_timer_.reset();
  if (fd_) loop_.Unwatch(watch_);
  fd_.Reset();
  tcp_fd_.Reset();
  // Another process lives there now, or this one will never fit.
  permanent = permanent || reason.code() == Code::kFailedPrecondition ||
              reason.code() == Code::kPermissionDenied ||
              reason.code() == Code::kInvalidArgument;
  owner_.OnLinkLost(reason, permanent);
}

}  // namespace tidepool::transfer::internal
