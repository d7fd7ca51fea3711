// The right to write a set of extents of another process's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dataplane/base/clock.h"

namespace tidepool::transfer {

// Names registered memory inside one process; never reused while it lives.
using RegionId = uint64_t;

// Which parts of a region may be written. Extent (layer, i), index
// `layer * page_ids.size() + i`, is the `slice_bytes` bytes that start at
// `layer * layer_stride_bytes + page_ids[i] * slice_bytes`.
struct Window {
  RegionId region = 0;
  std::vector<uint32_t> page_ids;
  uint32_t num_layers = 0;
  uint64_t layer_stride_bytes = 0;
  uint64_t slice_bytes = 0;

  // The number of extents; nullopt on overflow of 32 bits.
  std::optional<uint32_t> NumExtents() const;
  uint32_t ExtentIndex(uint32_t layer, uint32_t page_index) const {
    return layer * static_cast<uint32_t>(page_ids.size()) + page_index;
  }

  bool operator==(const Window&) const = default;
};

using Mac = std::array<std::byte, 32>;

// Handed by the owner of the memory to one writer, by whatever channel. Whoever
// holds it may write, so it travels only over channels that may carry the KV
// itself.
struct Capability {
  uint64_t id = 0;
  uint64_t incarnation = 0;  // of the process that granted it
  uint64_t generation = 0;   // counts the grants on the region
  Window window;
  // When the owner starts to revoke it, on the holder's own clock.
  TimePoint expiry;
  Mac mac{};

  bool operator==(const Capability&) const = default;
};

// Signs capabilities with a secret that never leaves the process. Immutable,
// thread-safe.
class CapabilityMint {
 public:
  CapabilityMint();  // draws the secret

  // HMAC-SHA256 over everything but the expiry, which the owner enforces from
  // its own record.
  Mac Sign(const Capability& capability) const;

 private:
  std::array<unsigned char, 32> secret_;
};

// In constant time.
bool SameMac(const Mac& a, const Mac& b);

}  // namespace tidepool::transfer
