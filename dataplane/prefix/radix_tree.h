// The page table of a worker's prefix cache.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/prefix/block_key.h"
#include "dataplane/prefix/kv_events.h"

namespace tidepool::prefix {

// A tree of blocks: an edge is one block's tokens, and since a block's key
// hashes all tokens up to its end, the key alone names a node. A node holds the
// pages of its block, given as plain numbers; the tree never looks into them.
//
// A pinned block and all in front of it stay. Of the others the least recently
// pinned is evicted first and, among those unpinned together, the deepest, so
// that no eviction leaves a hole in front of a kept suffix.
//
// Externally synchronized. All memory is taken at construction; finding and
// adding a block are O(1), pinning and unpinning O(depth).
class RadixTree {
 public:
  class Pin;

  // At most `capacity` blocks of `pages_per_block` pages. `events`, which
  // outlives the tree, is told of every block stored and removed.
  RadixTree(int32_t capacity, int32_t pages_per_block, KvEventLog& events);
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;
  ~RadixTree();  // no pin is left

  // Pins the longest prefix of `keys`, a chain from `root`, that is here.
  Pin Acquire(const BlockKey& root, std::span<const BlockKey> keys);

  // Adds the block behind `pin` and moves `pin` to it. True if the tree took
  // `pages`; false if it had the block already, with pages of its own. The tree
  // is not full.
  bool Extend(Pin& pin, const BlockKey& key, std::span<const int32_t> pages);

  // Pages of the deepest pinned block, of which there is one.
  std::span<const int32_t> DeepestPages(const Pin& pin) const;

  // Calls visit(pages) for every pinned block, the deepest first.
  template <typename Visit>
  void VisitUp(const Pin& pin, Visit visit) const;

  // Evicts one block; its pages are valid until the next Extend, and empty if
  // every block is pinned.
  std::span<const int32_t> Evict();

  // Forgets all blocks that are not pinned; calls visit(pages) for each. One
  // event if none is left.
  template <typename Visit>
  void Clear(Visit visit);

  int32_t size() const { return size_; }
  // Blocks that are not pinned.
  int32_t evictable() const { return evictable_; }

  // Calls visit(block, pages) for every block, parents first.
  template <typename Visit>
  void VisitAll(Visit visit) const;

  // Errors: kInternal, which is a bug.
  Status CheckInvariants() const;

 private:
  static constexpr int32_t kNone = -1;

  struct Node {
    StoredBlock block;
    int32_t parent = kNone;
    int32_t depth = 0;
    int32_t children = 0;
    int32_t pins = 0;                // on this block or any behind it
    int32_t next_in_bucket = kNone;  // of equal hash, or the next free node
    // Neighbours by age among unpinned blocks.
    int32_t older = kNone, newer = kNone;
  };

  int32_t& BucketOf(const BlockKey& key);
  int32_t Find(const BlockKey& key);
  std::span<const int32_t> PagesOf(int32_t node) const;
  void AddPin(int32_t node);
  void DropPins(int32_t node);  // on it and all in front of it
  void AppendNewest(int32_t node);
  void Unlink(int32_t node);
  void Remove(int32_t node);
  std::vector<int32_t> ParentsFirst() const;

  const int32_t pages_per_block_;
  KvEventLog& events_;
  std::vector<Node> nodes_;
  std::vector<int32_t> pages_;    // [node][pages_per_block]
  std::vector<int32_t> buckets_;  // a power of two; first node or kNone
  int32_t first_free_ = kNone;
  int32_t oldest_ = kNone, newest_ = kNone;
  int32_t size_ = 0, evictable_ = 0, pins_ = 0;
};

// Keeps a block, and all in front of it, in the tree while it lives. A pin of
// no block at all remembers the root only.
class RadixTree::Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept { *this = std::move(other); }
  Pin& operator=(Pin&& other) noexcept;
  ~Pin() { Reset(); }

  // Blocks pinned.
  int32_t depth() const;
  void Reset();

 private:
  friend class RadixTree;
  Pin(RadixTree* tree, int32_t node, const BlockKey& root)
      : tree_(tree), node_(node), root_(root) {}

  RadixTree* tree_ = nullptr;
  int32_t node_ = kNone;
  BlockKey root_;
};

template <typename Visit>
void RadixTree::VisitUp(const Pin& pin, Visit visit) const {
  for (int32_t node = pin.node_; node != kNone; node = nodes_[node].parent) {
    visit(PagesOf(node));
  }
}

template <typename Visit>
void RadixTree::Clear(Visit visit) {
  const bool all = evictable_ == size_;
  if (all && size_ > 0) events_.Append(KvEvent::Kind::kCleared, {});
  while (oldest_ != kNone) {
    const int32_t node = oldest_;
    if (!all) events_.Append(KvEvent::Kind::kRemoved, nodes_[node].block);
    Remove(node);
    visit(PagesOf(node));
  }
}

template <typename Visit>
void RadixTree::VisitAll(Visit visit) const {
  for (const int32_t node : ParentsFirst()) {
    visit(nodes_[node].block, PagesOf(node));
  }
}

}  // namespace tidepool::prefix
