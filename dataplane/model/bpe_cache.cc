#include "dataplane/model/bpe_cache.h"

#include <cstring>

namespace tidepool::model::internal {
namespace {

uint64_t MultiplyFold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

constexpr uint64_t kOdd = uint64_t{1} << 32;  // in the version

uint64_t Shape(uint32_t bytes, size_t ids) { return bytes << 8 | ids; }

}  // namespace

CacheKey::CacheKey(std::string_view word, size_t readable)
    : size(static_cast<uint32_t>(word.size())) {
  if (readable >= kBytesMax) {
    std::memcpy(words.data(), word.data(), kBytesMax);
    // Zero what is beyond the word.
    for (uint32_t i = 0; i < 3; ++i) {
      const uint32_t start = 8 * i;
      if (size <= start) {
        words[i] = 0;
      } else if (size < start + 8) {
        words[i] &= (uint64_t{1} << (8 * (size - start))) - 1;
      }
    }
  } else {
    words = {};
    std::memcpy(words.data(), word.data(), word.size());
  }
  hash =
      MultiplyFold(words[0] ^ 0xA0761D6478BD642Fu,
                   words[1] ^ 0xE7037ED1A0B428DBu) ^
      MultiplyFold(words[2] ^ 0x8EBC6AF09C88C6E3u, size ^ 0x589965CC75374CC3u);
  hash *= 0x9E3779B97F4A7C15u;
}

WordCache::WordCache(size_t entries_log2)
    : shift_(64 - static_cast<int>(entries_log2)),
      entries_(std::make_unique<Entry[]>(size_t{1} << entries_log2)) {}

size_t WordCache::Read(const Entry& entry, const CacheKey& key, int32_t* ids) {
  const uint64_t state = entry.state.load(std::memory_order_acquire);
  if ((state & kOdd) != 0 || (state >> 8 & 0xFF) != key.size) return 0;
  // Acquire keeps the second look at `state` behind these loads.
  for (size_t i = 0; i < 3; ++i) {
    if (entry.key[i].load(std::memory_order_acquire) != key.words[i]) return 0;
  }
  uint64_t packed[kIdWords];
  for (size_t i = 0; i < kIdWords; ++i) {
    packed[i] = entry.ids[i].load(std::memory_order_acquire);
  }
  if (entry.state.load(std::memory_order_relaxed) != state) return 0;
  std::memcpy(ids, packed, sizeof(packed));
  return state & 0xFF;
}

size_t WordCache::Find(const CacheKey& key, int32_t* ids) const {
  const size_t index = IndexOf(key);
  const size_t found = Read(entries_[index], key, ids);
  return found != 0 ? found : Read(entries_[index ^ 1], key, ids);
}

void WordCache::Insert(const CacheKey& key, std::span<const int32_t> ids) {
  const size_t first = IndexOf(key);
  size_t victim = first;
  if (entries_[first].state.load(std::memory_order_relaxed) != 0 &&
      (entries_[first ^ 1].state.load(std::memory_order_relaxed) == 0 ||
       (key.hash & 1) != 0)) {
    victim = first ^ 1;
  }
  Entry& entry = entries_[victim];
  uint64_t state = entry.state.load(std::memory_order_relaxed);
  if ((state & kOdd) != 0 || !entry.state.compare_exchange_strong(
                                 state, state | kOdd, std::memory_order_acquire,
                                 std::memory_order_relaxed)) {
    return;
  }
  // Release: whoever sees one of these values sees the odd version too.
  for (size_t i = 0; i < 3; ++i) {
    entry.key[i].store(key.words[i], std::memory_order_release);
  }
  uint64_t packed[kIdWords] = {};
  std::memcpy(packed, ids.data(), ids.size_bytes());
  for (size_t i = 0; i < kIdWords; ++i) {
    entry.ids[i].store(packed[i], std::memory_order_release);
  }
  const uint64_t version = ((state >> 32) + 2) << 32;
  entry.state.store(version | Shape(key.size, ids.size()),
                    std::memory_order_release);
}

}  // namespace tidepool::model::internal
