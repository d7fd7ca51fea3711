// Memory that other processes of this host can map, read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::transfer {

// Zeroed memory behind a descriptor that can be passed to another process. Its
// size is sealed, so that a reader can never fault, and so is writing through
// any mapping but this one. Externally synchronized.
class SharedMemory {
 public:
  // `name` shows in /proc. Errors: kInvalidArgument (size),
  // kResourceExhausted (no memory).
  static StatusOr<SharedMemory> Create(const std::string& name, uint64_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::span<std::byte> memory() const { return memory_; }
  int fd() const { return fd_.get(); }

 private:
  SharedMemory(UniqueFd fd, std::span<std::byte> memory)
      : fd_(std::move(fd)), memory_(memory) {}
  void Unmap();

  UniqueFd fd_;
  std::span<std::byte> memory_;
};

// A peer's SharedMemory. Externally synchronized.
class PeerMapping {
 public:
  // Errors: kInvalidArgument unless `fd` is memory of `bytes` bytes that its
  // owner cannot shrink.
  static StatusOr<PeerMapping> Map(UniqueFd fd, uint64_t bytes);
  PeerMapping(PeerMapping&& other) noexcept;
  PeerMapping& operator=(PeerMapping&& other) noexcept;
  ~PeerMapping();

  std::span<const std::byte> memory() const { return memory_; }

 private:
  explicit PeerMapping(std::span<const std::byte> memory) : memory_(memory) {}
  void Unmap();

  std::span<const std::byte> memory_;
};

}  // namespace tidepool::transfer
