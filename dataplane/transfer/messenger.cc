#include "dataplane/transfer/messenger.h"

#include <bit>
#include <utility>

#include "dataplane/base/digest.h"

namespace tidepool::transfer {

static_assert(std::endian::native == std::endian::little);

std::string_view TransportName(Transport transport) {
  return transport == Transport::kTcp ? "tcp" : "shm";
}

StatusOr<TransportPolicy> ParseTransportPolicy(std::string_view name) {
  if (name == "auto") return TransportPolicy::kAuto;
  if (name == "tcp") return TransportPolicy::kTcp;
  if (name == "shm") return TransportPolicy::kShm;
  return InvalidArgument("transport '{}': must be auto, tcp or shm", name);
}

uint64_t DigestOf(std::span<const uint64_t> extent_checksums) {
  return Checksum64(std::as_bytes(extent_checksums));
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : messenger_(std::exchange(other.messenger_, nullptr)), id_(other.id_) {}

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  if (this != &other) {
    if (messenger_ != nullptr) messenger_->Unregister(id_);
    messenger_ = std::exchange(other.messenger_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

MemoryRegion::~MemoryRegion() {
  if (messenger_ != nullptr) messenger_->Unregister(id_);
}

}  // namespace tidepool::transfer
