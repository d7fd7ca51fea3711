#include "dataplane/model/bpe_merge.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tidepool::model::internal {
namespace {

// Up to here finding the minimum by looking at all ranks, which vectorizes,
// beats a heap.
constexpr size_t kScanMax = 96;

size_t MergeByScanning(const MergeTable& merges, std::span<int32_t> ids) {
  std::array<uint32_t, kScanMax> ranks;  // of the pair that starts here
  std::array<int32_t, kScanMax> merged;  // what it becomes
  size_t count = ids.size();
  const auto look = [&](size_t at) {
    const Merge merge = merges.Find(ids[at], ids[at + 1]);
    ranks[at] = merge.rank;
    merged[at] = merge.id;
  };
  for (size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    uint32_t lowest = Merge::kNever;
    for (size_t i = 0; i + 1 < count; ++i) lowest = std::min(lowest, ranks[i]);
    if (lowest == Merge::kNever) break;
    const size_t at = static_cast<size_t>(
        std::find(ranks.begin(), ranks.begin() + count - 1, lowest) -
        ranks.begin());
    ids[at] = merged[at];
    std::copy(ids.begin() + at + 2, ids.begin() + count, ids.begin() + at + 1);
    std::copy(ranks.begin() + at + 1, ranks.begin() + count - 1,
              ranks.begin() + at);
    std::copy(merged.begin() + at + 1, merged.begin() + count - 1,
              merged.begin() + at);
    --count;
    if (at > 0) look(at - 1);
    if (at + 1 < count) look(at);
  }
  return count;
}

// A linked list of tokens and a heap of the pairs that merge; a pair that is
// gone is noticed when it comes up.
class HeapMerger {
 public:
  HeapMerger(const MergeTable& merges, std::span<int32_t> ids)
      : merges_(merges), ids_(ids), nodes_(ids.size()) {}

  size_t Run() {
    const auto size = static_cast<uint32_t>(ids_.size());
    for (uint32_t i = 0; i < size; ++i) {
      nodes_[i].previous = i == 0 ? kNone : i - 1;
      nodes_[i].next = i + 1 == size ? kNone : i + 1;
    }
    for (uint32_t i = 0; i + 1 < size; ++i) {
      if (Look(i)) heap_.push_back(Entry(i));
    }
    std::ranges::make_heap(heap_, std::greater<>());
    while (!heap_.empty()) {
      const uint64_t top = heap_.front();
      std::ranges::pop_heap(heap_, std::greater<>());
      heap_.pop_back();
      const auto at = static_cast<uint32_t>(top);
      // The rank tells whether the pair is still the one that was pushed.
      if (nodes_[at].rank == top >> 32) MergeAt(at);
    }
    size_t count = 0;
    for (uint32_t i = 0; i != kNone; i = nodes_[i].next) {
      ids_[count++] = ids_[i];
    }
    return count;
  }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  struct Node {
    uint32_t previous = kNone;
    uint32_t next = kNone;
    uint32_t rank = Merge::kNever;  // of the pair that starts here
    int32_t merged = 0;
  };

  uint64_t Entry(uint32_t at) const {
    return uint64_t{nodes_[at].rank} << 32 | at;
  }

  // Looks the pair that starts at `at` up; true if it merges.
  bool Look(uint32_t at) {
    Node& node = nodes_[at];
    const Merge merge =
        node.next == kNone ? Merge() : merges_.Find(ids_[at], ids_[node.next]);
    node.rank = merge.rank;
    node.merged = merge.id;
    return merge.rank != Merge::kNever;
  }

  void Push(uint32_t at) {
    if (!Look(at)) return;
    heap_.push_back(Entry(at));
    std::ranges::push_heap(heap_, std::greater<>());
  }

  void MergeAt(uint32_t at) {
    Node& node = nodes_[at];
    Node& right = nodes_[node.next];
    ids_[at] = node.merged;
    node.next = right.next;
    right.rank = Merge::kNever;
    if (node.next != kNone) nodes_[node.next].previous = at;
    Push(at);
    if (node.previous != kNone) Push(node.previous);
  }

  const MergeTable& merges_;
  std::span<int32_t> ids_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;
};

}  // namespace

size_t MergeAll(const MergeTable& merges, std::span<int32_t> ids) {
  if (ids.size() < 2) return ids.size();
  if (ids.size() <= kScanMax) return MergeByScanning(merges, ids);
  return HeapMerger(merges, ids).Run();
}

}  // namespace tidepool::model::internal
