// What a cache tells others about the blocks it holds (DESIGN §4, KV events).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/prefix/block_key.h"

namespace tidepool::prefix {

// A block in a cache; `parent` is the key of the block in front of it, or the
// root of its domain.
struct StoredBlock {
  BlockKey key;
  BlockKey parent;
  bool operator==(const StoredBlock&) const = default;
};

struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };

  uint64_t sequence = 0;  // from 1, without gaps
  Kind kind = Kind::kStored;
  StoredBlock block;  // of kCleared: all zero
  bool operator==(const KvEvent&) const = default;
};

// The latest `capacity` events; older ones are forgotten, and a reader that
// still needs them starts again from the owner's list of blocks. Externally
// synchronized. Does not allocate after construction.
class KvEventLog {
 public:
  // `capacity` is at least 1.
  explicit KvEventLog(size_t capacity);

  void Append(KvEvent::Kind kind, const StoredBlock& block);

  // The number that the next event will have.
  uint64_t next_sequence() const { return next_sequence_; }

  // Appends to `events` those numbered from `from` on, at most `max`. False,
  // with nothing appended, if some are forgotten or `from` lies in the future:
  // then the reader must resync.
  bool Read(uint64_t from, size_t max, std::vector<KvEvent>& events) const;

 private:
  std::vector<KvEvent> ring_;  // event n lies at n modulo its size
  uint64_t next_sequence_ = 1;
};

}  // namespace tidepool::prefix
