#include "dataplane/transfer/grant_table.h"

#include <algorithm>
#include <utility>

#include "dataplane/base/checked_math.h"

namespace tidepool::transfer::internal {
namespace {

// Every extent of `window` lies within `region_bytes`, and no two overlap.
Status CheckWindow(const Window& window, uint64_t region_bytes,
                   uint32_t max_extents) {
  const std::optional<uint32_t> extents = window.NumExtents();
  if (!extents || *extents == 0 || *extents > max_extents)
    return InvalidArgument(
        "window: {} layers of {} pages, must be 1 to {} "
        "extents",
        window.num_layers, window.page_ids.size(), max_extents);
  if (window.slice_bytes == 0 || window.slice_bytes > kMaxSliceBytes)
    return InvalidArgument("window: slice_bytes {}, must be 1 to {}",
                           window.slice_bytes, kMaxSliceBytes);

  std::vector<uint32_t> pages = window.page_ids;
  std::ranges::sort(pages);
  if (const auto twice = std::ranges::adjacent_find(pages);
      twice != pages.end())
    return InvalidArgument("window: page {} is named twice", *twice);

  const auto layer_bytes =
      CheckedMul(uint64_t{pages.back()} + 1, window.slice_bytes);
  if (!layer_bytes ||
      (window.num_layers > 1 && *layer_bytes > window.layer_stride_bytes))
    return InvalidArgument("window: page {} overlaps the next layer",
                           pages.back());
  const auto last_layer =
      CheckedMul(uint64_t{window.num_layers} - 1, window.layer_stride_bytes);
  const auto end =
      last_layer ? CheckedAdd(*last_layer, *layer_bytes) : std::nullopt;
  if (!end || *end > region_bytes)
    return InvalidArgument("window: reaches beyond its region of {} bytes",
                           region_bytes);
  return OkStatus();
}

}  // namespace

StatusOr<Capability> GrantTable::Add(std::span<std::byte> memory,
                                     const Window& window, TimePoint expiry) {
  RETURN_IF_ERROR(CheckWindow(window, memory.size(), max_extents_per_grant_));
  const uint32_t num_extents = *window.NumExtents();

  const MutexLock lock(&mutex_);
  if (entries_.size() >= max_grants_)
    return ResourceExhausted("grant: {} are outstanding already", max_grants_);
  Capability capability{.id = next_id_++,
                        .incarnation = incarnation_,
                        .generation = ++generations_[window.region],
                        .window = window,
                        .expiry = expiry};
  capability.mac = mint_.Sign(capability);
  entries_[capability.id] = {
      .capability = capability,
      .memory = memory.data(),
      .num_extents = num_extents,
      .checksums = std::vector<uint64_t>(num_extents),
      .present = std::vector<bool>(num_extents),
  };
  return capability;
}

Code GrantTable::CheckRight(const Entry* entry, const WriteHead& write,
                            TimePoint now) const {
  if (write.incarnation != incarnation_) return Code::kPermissionDenied;
  // Revoked and never granted look alike once the record is gone; the holder
  // of a revoked capability is told what it needs to know by either.
  if (entry == nullptr) return Code::kFailedPrecondition;
  const Capability& capability = entry->capability;
  if (!SameMac(write.mac, capability.mac) ||
      write.generation != capability.generation)
    return Code::kPermissionDenied;
  if (now >= capability.expiry) return Code::kFailedPrecondition;
  if (write.slice_bytes != capability.window.slice_bytes)
    return Code::kOutOfRange;
  return Code::kOk;
}

void GrantTable::Admit(const WriteHead& write, TimePoint now,
                       std::vector<Admission>& admissions) {
  const MutexLock lock(&mutex_);
  const auto found = entries_.find(write.capability);
  Entry* entry = found == entries_.end() ? nullptr : &found->second;
  const Code right = CheckRight(entry, write, now);
  admissions.assign(write.slices.size(), {.code = right});
  if (right != Code::kOk) return;

  const Window& window = entry->capability.window;
  const auto pages = static_cast<uint32_t>(window.page_ids.size());
  for (size_t i = 0; i < write.slices.size(); ++i) {
    const uint32_t extent = write.slices[i].extent;
    if (extent >= entry->num_extents) {
      admissions[i].code = Code::kOutOfRange;
      continue;
    }
    // Within the region, as checked when it was granted.
    admissions[i].target = entry->memory +
                           (extent / pages) * window.layer_stride_bytes +
                           window.page_ids[extent % pages] * window.slice_bytes;
    if (entry->present[extent]) {
      entry->present[extent] = false;
      entry->checksums[extent] = 0;
      --entry->received;
    }
  }
}

void GrantTable::Record(uint64_t capability, uint32_t extent,
                        uint64_t checksum) {
  const MutexLock lock(&mutex_);
  const auto found = entries_.find(capability);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (!entry.present[extent]) ++entry.received;
  entry.present[extent] = true;
  entry.checksums[extent] = checksum;
}

StatusOr<Received> GrantTable::Remove(uint64_t capability) {
  const MutexLock lock(&mutex_);
  StatusOr<Received> received = DigestLocked(capability);
  entries_.erase(capability);
  return received;
}

std::vector<uint64_t> GrantTable::RemoveRegion(RegionId region) {
  const MutexLock lock(&mutex_);
  std::vector<uint64_t> removed;
  for (const auto& [id, entry] : entries_) {
    if (entry.capability.window.region == region) removed.push_back(id);
  }
  for (const uint64_t id : removed) entries_.erase(id);
  generations_.erase(region);
  return removed;
}

StatusOr<Received> GrantTable::Digest(uint64_t capability) const {
  const MutexLock lock(&mutex_);
  return DigestLocked(capability);
}

StatusOr<Received> GrantTable::DigestLocked(uint64_t capability) const {
  const auto found = entries_.find(capability);
  if (found == entries_.end())
    return NotFound("capability {}: unknown or revoked", capability);
  const Entry& entry = found->second;
  return Received{.extents = entry.received,
                  .complete = entry.received == entry.num_extents,
                  .digest = DigestOf(entry.checksums)};
}

size_t GrantTable::size() const {
  const MutexLock lock(&mutex_);
  return entries_.size();
}

}  // namespace tidepool::transfer::internal
