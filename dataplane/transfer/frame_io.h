// Frames over a non-blocking socket, in pieces as they come and go.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"
#include "dataplane/transfer/wire.h"

namespace tidepool::transfer::internal {

// Reads header and head of one frame after the other; the payload is the
// caller's to read. Confined to one thread.
class FrameReader {
 public:
  // True when a frame is whole: valid until the next call. False when there is
  // nothing to read now. Errors: kUnavailable (closed, broken),
  // kInvalidArgument (not a frame).
  StatusOr<bool> Poll(int fd);

  const FrameHeader& header() const { return header_; }
  std::span<const std::byte> head() const { return head_; }
  // The descriptor that came with the frame, if any.
  UniqueFd TakeDescriptor() { return std::move(descriptor_); }
  // In the middle of a frame.
  bool partial() const { return filled_ > 0; }

 private:
  StatusOr<bool> Fill(int fd, std::span<std::byte> target, size_t done);

  std::array<std::byte, kHeaderBytes> header_bytes_;
  FrameHeader header_;
  Bytes head_;
  size_t filled_ = 0;  // of header and head
  bool whole_ = false;
  UniqueFd descriptor_;
};

// A frame on its way out: head, then payload from the caller's memory.
struct OutgoingFrame {
  Bytes head;
  std::vector<std::span<const std::byte>> payload;
  UniqueFd descriptor;  // accompanies the first byte
  uint64_t tag = 0;     // the caller's
};

// Sends frames in order. Confined to one thread.
class FrameWriter {
 public:
  void Push(OutgoingFrame frame) { frames_.push_back(std::move(frame)); }
  // Sends until all is sent (true) or the socket is full (false).
  // Errors: kUnavailable.
  StatusOr<bool> Flush(int fd);

  // Ends the use of payload memory: what is left of frames with `tag` is sent
  // as zeros, which the receiver finds to be damaged.
  void Withdraw(uint64_t tag);

  size_t size() const { return frames_.size(); }
  bool empty() const { return frames_.empty(); }

 private:
  StatusOr<size_t> SendSome(int fd, OutgoingFrame& frame);
  void Advance(size_t bytes);

  std::deque<OutgoingFrame> frames_;
  // Of the first frame.
  size_t head_sent_ = 0;
  size_t payload_index_ = 0, payload_offset_ = 0;
};

}  // namespace tidepool::transfer::internal
