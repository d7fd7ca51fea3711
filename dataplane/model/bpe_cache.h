// What BPE made of the words seen before.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace tidepool::model::internal {

// A word short enough for the cache, padded with zeros, and its hash.
struct CacheKey {
  static constexpr size_t kBytesMax = 24;

  CacheKey() {}  // unspecified, for arrays that are filled
  // `readable` bytes of `word.data()`, at least `word.size()`, may be read.
  CacheKey(std::string_view word, size_t readable);

  std::array<uint64_t, 3> words;
  uint32_t size;
  uint64_t hash;
};

// A bounded map from words to token ids that forgets: each word has two
// places, and a new one takes the first free or the less lucky. One cache line
// an entry, guarded by a sequence lock, so that a hit takes no lock and writes
// nothing. Thread-safe.
class WordCache {
 public:
  static constexpr size_t kIdsMax = 8;

  explicit WordCache(size_t entries_log2);

  // Writes the ids to `ids`, which has room for kIdsMax, and returns their
  // count; 0 on a miss. What `ids` holds beyond the count is unspecified.
  size_t Find(const CacheKey& key, int32_t* ids) const;
  // `ids` are 1 to kIdsMax. Gives up if another thread is writing there.
  void Insert(const CacheKey& key, std::span<const int32_t> ids);
  void Prefetch(const CacheKey& key) const {
    __builtin_prefetch(&entries_[IndexOf(key)]);
  }

 private:
  static constexpr size_t kIdWords = kIdsMax / 2;

  // `state`: version (odd while written) << 32 | bytes << 8 | ids; zero: free.
  struct alignas(64) Entry {
    std::atomic<uint64_t> state{0};
    std::atomic<uint64_t> key[3]{};
    std::atomic<uint64_t> ids[kIdWords]{};
  };
  static_assert(sizeof(Entry) == 64);

  size_t IndexOf(const CacheKey& key) const { return key.hash >> shift_; }
  static size_t Read(const Entry& entry, const CacheKey& key, int32_t* ids);

  int shift_;
  std::unique_ptr<Entry[]> entries_;
};

}  // namespace tidepool::model::internal
