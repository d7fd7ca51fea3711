#include "dataplane/transfer/frame_io.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "dataplane/base/check.h"

namespace tidepool::transfer::internal {
namespace {

constexpr size_t kMaxVectors = 64;

// Stands in for memory that was withdrawn.
constexpr std::array<std::byte, 64 << 10> kZeros{};

union DescriptorBuffer {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

}  // namespace

StatusOr<bool> FrameReader::Fill(int fd, std::span<std::byte> target,
                                 size_t done) {
  while (done < target.size()) {
    iovec vector{target.data() + done, target.size() - done};
    DescriptorBuffer control;
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    // Not CMSG_SPACE, whose padding has room for a second descriptor, which
    // would be lost.
    message.msg_controllen = CMSG_LEN(sizeof(int));
    const ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got < 0)
      return Unavailable("connection: {}",
                         MessageOf(ErrnoError(errno, "read")));
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
        continue;
      int passed;
      std::memcpy(&passed, CMSG_DATA(part), sizeof(passed));
      descriptor_.Reset(passed);
    }
    if (got == 0) return Unavailable("connection: closed by the peer");
    done += static_cast<size_t>(got);
    filled_ += static_cast<size_t>(got);
  }
  return true;
}

StatusOr<bool> FrameReader::Poll(int fd) {
  if (whole_) {
    whole_ = false;
    filled_ = 0;
    descriptor_.Reset();
  }
  if (filled_ < kHeaderBytes) {
    ASSIGN_OR_RETURN(const bool done, Fill(fd, header_bytes_, filled_));
    if (!done) return false;
    ASSIGN_OR_RETURN(header_, ParseHeader(header_bytes_));
    head_.resize(header_.head_bytes);
  }
  ASSIGN_OR_RETURN(whole_, Fill(fd, head_, filled_ - kHeaderBytes));
  return whole_;
}

StatusOr<size_t> FrameWriter::SendSome(int fd, OutgoingFrame& frame) {
  std::array<iovec, kMaxVectors> vectors;
  size_t count = 0;
  const auto add = [&](std::span<const std::byte> bytes) {
    vectors[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  if (head_sent_ < frame.head.size())
    add(std::span<const std::byte>(frame.head).subspan(head_sent_));
  size_t offset = payload_offset_;
  for (size_t i = payload_index_;
       i < frame.payload.size() && count < kMaxVectors; ++i) {
    add(frame.payload[i].subspan(offset));
    offset = 0;
  }

  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = count;
  DescriptorBuffer control{};
  if (frame.descriptor) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    const int passed = frame.descriptor.get();
    std::memcpy(CMSG_DATA(part), &passed, sizeof(passed));
  }
  while (true) {
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent >= 0) {
      frame.descriptor.Reset();
      return static_cast<size_t>(sent);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR)
      return Unavailable("connection: {}",
                         MessageOf(ErrnoError(errno, "write")));
  }
}

void FrameWriter::Advance(size_t bytes) {
  OutgoingFrame& frame = frames_.front();
  const size_t head = std::min(bytes, frame.head.size() - head_sent_);
  head_sent_ += head;
  bytes -= head;
  while (bytes > 0) {
    const size_t left = frame.payload[payload_index_].size() - payload_offset_;
    const size_t step = std::min(bytes, left);
    payload_offset_ += step;
    bytes -= step;
    if (step == left) {
      ++payload_index_;
      payload_offset_ = 0;
    }
  }
  if (head_sent_ == frame.head.size() &&
      payload_index_ == frame.payload.size()) {
    frames_.pop_front();
    head_sent_ = payload_index_ = payload_offset_ = 0;
  }
}

StatusOr<bool> FrameWriter::Flush(int fd) {
  while (!frames_.empty()) {
    ASSIGN_OR_RETURN(const size_t sent, SendSome(fd, frames_.front()));
    if (sent == 0) return false;
    Advance(sent);
  }
  return true;
}

void FrameWriter::Withdraw(uint64_t tag) {
  for (OutgoingFrame& frame : frames_) {
    if (frame.tag != tag) continue;
    uint64_t left = 0;
    for (const std::span<const std::byte> part : frame.payload)
      left += part.size();
    if (&frame == &frames_.front()) {
      for (size_t i = 0; i < payload_index_; ++i)
        left -= frame.payload[i].size();
      left -= payload_offset_;
      payload_index_ = payload_offset_ = 0;
    }
    frame.payload.clear();
    for (; left > 0; left -= frame.payload.back().size())
      frame.payload.push_back(
          std::span(kZeros).first(std::min<uint64_t>(left, kZeros.size())));
  }
}

}  // namespace tidepool::transfer::internal
