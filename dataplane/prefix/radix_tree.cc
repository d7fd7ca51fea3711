#include "dataplane/prefix/radix_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "dataplane/base/check.h"

namespace tidepool::prefix {

RadixTree::RadixTree(int32_t capacity, int32_t pages_per_block,
                     KvEventLog& events)
    : pages_per_block_(pages_per_block),
      events_(events),
      nodes_(capacity),
      pages_(size_t(capacity) * pages_per_block),
      buckets_(std::bit_ceil(static_cast<uint32_t>(capacity) + 1), kNone) {
  CHECK(capacity >= 0 && pages_per_block > 0);
  for (int32_t node = capacity - 1; node >= 0; --node) {
    nodes_[node].next_in_bucket = first_free_;
    first_free_ = node;
  }
}

RadixTree::~RadixTree() { CHECK(pins_ == 0); }

RadixTree::Pin RadixTree::Acquire(const BlockKey& root,
                                  std::span<const BlockKey> keys) {
  int32_t node = kNone;
  for (const BlockKey& key : keys) {
    const int32_t child = Find(key);
    // Keys that are no chain end the prefix.
    if (child == kNone || nodes_[child].parent != node) break;
    node = child;
    AddPin(node);
  }
  ++pins_;
  return Pin(this, node, root);
}

bool RadixTree::Extend(Pin& pin, const BlockKey& key,
                       std::span<const int32_t> pages) {
  CHECK(pin.tree_ == this);
  if (const int32_t present = Find(key); present != kNone) {
    CHECK(nodes_[present].parent == pin.node_);
    AddPin(present);
    pin.node_ = present;
    return false;
  }
  CHECK(first_free_ != kNone && std::ssize(pages) == pages_per_block_);
  const int32_t node = first_free_;
  first_free_ = nodes_[node].next_in_bucket;
  const int32_t parent = pin.node_;
  const bool at_root = parent == kNone;
  int32_t& bucket = BucketOf(key);
  nodes_[node] = {
      .block = {.key = key,
                .parent = at_root ? pin.root_ : nodes_[parent].block.key},
      .parent = parent,
      .depth = at_root ? 0 : nodes_[parent].depth + 1,
      .pins = 1,
      .next_in_bucket = bucket};
  bucket = node;
  if (!at_root) ++nodes_[parent].children;
  std::ranges::copy(pages, pages_.begin() + size_t(node) * pages_per_block_);
  ++size_;
  pin.node_ = node;
  events_.Append(KvEvent::Kind::kStored, nodes_[node].block);
  return true;
}

std::span<const int32_t> RadixTree::DeepestPages(const Pin& pin) const {
  CHECK(pin.node_ != kNone);
  return PagesOf(pin.node_);
}

std::span<const int32_t> RadixTree::Evict() {
  if (oldest_ == kNone) return {};
  const int32_t node = oldest_;
  events_.Append(KvEvent::Kind::kRemoved, nodes_[node].block);
  Remove(node);
  return PagesOf(node);
}

int32_t& RadixTree::BucketOf(const BlockKey& key) {
  // Keys are uniform already.
  uint64_t hash;
  std::memcpy(&hash, key.bytes.data(), sizeof(hash));
  return buckets_[hash & (buckets_.size() - 1)];
}

int32_t RadixTree::Find(const BlockKey& key) {
  int32_t node = BucketOf(key);
  while (node != kNone && nodes_[node].block.key != key) {
    node = nodes_[node].next_in_bucket;
  }
  return node;
}

std::span<const int32_t> RadixTree::PagesOf(int32_t node) const {
  return std::span(pages_).subspan(size_t(node) * pages_per_block_,
                                   pages_per_block_);
}

void RadixTree::AddPin(int32_t node) {
  if (nodes_[node].pins++ == 0) Unlink(node);
}

void RadixTree::DropPins(int32_t node) {
  // From the deepest up, so that a block is always older than the one in front
  // of it, and the oldest of all has none behind it.
  for (; node != kNone; node = nodes_[node].parent) {
    if (--nodes_[node].pins == 0) AppendNewest(node);
  }
}

void RadixTree::AppendNewest(int32_t node) {
  nodes_[node].older = newest_;
  nodes_[node].newer = kNone;
  (newest_ == kNone ? oldest_ : nodes_[newest_].newer) = node;
  newest_ = node;
  ++evictable_;
}

void RadixTree::Unlink(int32_t node) {
  const auto [older, newer] = std::pair(nodes_[node].older, nodes_[node].newer);
  (older == kNone ? oldest_ : nodes_[older].newer) = newer;
  (newer == kNone ? newest_ : nodes_[newer].older) = older;
  --evictable_;
}

void RadixTree::Remove(int32_t node) {
  CHECK(nodes_[node].pins == 0 && nodes_[node].children == 0);
  Unlink(node);
  int32_t* link = &BucketOf(nodes_[node].block.key);
  while (*link != node) link = &nodes_[*link].next_in_bucket;
  *link = nodes_[node].next_in_bucket;
  if (nodes_[node].parent != kNone) --nodes_[nodes_[node].parent].children;
  nodes_[node].next_in_bucket = first_free_;
  first_free_ = node;
  --size_;
}

std::vector<int32_t> RadixTree::ParentsFirst() const {
  std::vector<int32_t> order;
  order.reserve(size_);
  for (int32_t node : buckets_) {
    for (; node != kNone; node = nodes_[node].next_in_bucket) {
      order.push_back(node);
    }
  }
  std::ranges::sort(order, {}, [this](int32_t node) {
    return std::pair(nodes_[node].depth, node);
  });
  return order;
}

Status RadixTree::CheckInvariants() const {
  const std::vector<int32_t> live = ParentsFirst();
  if (std::ssize(live) != size_) {
    return Internal("radix tree: {} blocks are linked, {} were counted",
                    live.size(), size_);
  }
  std::vector<int32_t> children(nodes_.size()), pins_behind(nodes_.size());
  for (const int32_t node : live) {
    const int32_t parent = nodes_[node].parent;
    if (parent == kNone) continue;
    ++children[parent];
    pins_behind[parent] += nodes_[node].pins;
    if (nodes_[parent].block.key != nodes_[node].block.parent ||
        nodes_[parent].depth + 1 != nodes_[node].depth) {
      return Internal("radix tree: block {} is not behind its parent", node);
    }
  }
  int32_t unpinned = 0;
  for (const int32_t node : live) {
    if (nodes_[node].children != children[node] ||
        nodes_[node].pins < pins_behind[node]) {
      return Internal("radix tree: block {} has {} children and {} pins", node,
                      nodes_[node].children, nodes_[node].pins);
    }
    unpinned += nodes_[node].pins == 0;
  }
  // A block must come up only after all blocks behind it.
  int32_t listed = 0;
  for (int32_t node = oldest_; node != kNone; node = nodes_[node].newer) {
    ++listed;
    if (nodes_[node].pins != 0 || children[node] != 0) {
      return Internal("radix tree: block {} would leave a hole", node);
    }
    if (nodes_[node].parent != kNone) --children[nodes_[node].parent];
  }
  if (listed != unpinned || listed != evictable_) {
    return Internal("radix tree: {} of {} unpinned blocks are listed", listed,
                    unpinned);
  }
  return OkStatus();
}

RadixTree::Pin& RadixTree::Pin::operator=(Pin&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  tree_ = std::exchange(other.tree_, nullptr);
  node_ = std::exchange(other.node_, kNone);
  root_ = other.root_;
  return *this;
}

int32_t RadixTree::Pin::depth() const {
  return node_ == kNone ? 0 : tree_->nodes_[node_].depth + 1;
}

void RadixTree::Pin::Reset() {
  if (tree_ == nullptr) return;
  tree_->DropPins(node_);
  --tree_->pins_;
  tree_ = nullptr;
  node_ = kNone;
}

}  // namespace tidepool::prefix
