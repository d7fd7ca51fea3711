// What this process has granted, and what has arrived. Pure bookkeeping: the
// caller moves the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/status.h"
#include "dataplane/transfer/capability.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/transfer/wire.h"

namespace tidepool::transfer::internal {

// Thread-safe. Writing into granted memory is confined to one thread, which is
// also the only one to call Admit, Record, Remove and RemoveRegion: so once
// Remove returned, and that thread has forgotten the targets that Admit gave
// it, nothing can land.
class GrantTable {
 public:
  GrantTable(uint64_t incarnation, uint32_t max_grants,
             uint32_t max_extents_per_grant)
      : incarnation_(incarnation),
        max_grants_(max_grants),
        max_extents_per_grant_(max_extents_per_grant) {}

  // `memory` is the region's. Errors: kInvalidArgument, kResourceExhausted.
  StatusOr<Capability> Add(std::span<std::byte> memory, const Window& window,
                           TimePoint expiry);

  // Where one slice of a frame goes; no target if refused.
  struct Admission {
    Code code = Code::kOk;
    std::byte* target = nullptr;
  };
  // Decides about each slice of `write`; admitted extents count as missing
  // until recorded.
  void Admit(const WriteHead& write, TimePoint now,
             std::vector<Admission>& admissions);

  // The extent holds bytes with this checksum.
  void Record(uint64_t capability, uint32_t extent, uint64_t checksum);

  // What had arrived. Errors: kNotFound.
  StatusOr<Received> Remove(uint64_t capability);
  // The capabilities removed.
  std::vector<uint64_t> RemoveRegion(RegionId region);

  StatusOr<Received> Digest(uint64_t capability) const;
  size_t size() const;

 private:
  struct Entry {
    Capability capability;
    std::byte* memory = nullptr;
    uint32_t num_extents = 0;
    uint32_t received = 0;
    std::vector<uint64_t> checksums;  // per extent
    std::vector<bool> present;        // per extent
  };

  StatusOr<Received> DigestLocked(uint64_t capability) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // kOk if the frame may write at all.
  Code CheckRight(const Entry* entry, const WriteHead& write,
                  TimePoint now) const;

  const uint64_t incarnation_;
  const uint32_t max_grants_, max_extents_per_grant_;
  const CapabilityMint mint_;

  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::unordered_map<RegionId, uint64_t> generations_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::transfer::internal
