// Which pairs of tokens merge, how early, and into what.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace tidepool::model::internal {

struct Merge {
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  uint32_t rank = kNever;  // lower merges first
  int32_t id = 0;          // of the joined token
};

// An open-addressed map from pairs of ids. Immutable and thread-safe after
// building.
class MergeTable {
 public:
  // For at most `pairs` pairs.
  explicit MergeTable(size_t pairs)
      : slots_(std::bit_ceil(2 * pairs + 2)),
        shift_(64 - std::countr_zero(slots_.size())) {}

  // False, and nothing changes, if the pair is there already.
  bool Add(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[Locate(Key(left, right))];
    if (slot.merge.rank != Merge::kNever) return false;
    slot = {Key(left, right), merge};
    return true;
  }

  // Rank kNever if the pair does not merge.
  Merge Find(int32_t left, int32_t right) const {
    return slots_[Locate(Key(left, right))].merge;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    Merge merge;  // rank kNever: free
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 |
           static_cast<uint32_t>(right);
  }

  size_t Locate(uint64_t key) const {
    // Fibonacci hashing of both halves; at most half the slots are taken.
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
    hash *= 0xD6E8FEB86659FD93u;
    size_t at = hash >> shift_;
    while (slots_[at].merge.rank != Merge::kNever && slots_[at].key != key) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }

  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace tidepool::model::internal
