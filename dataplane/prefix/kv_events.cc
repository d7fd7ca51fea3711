#include "dataplane/prefix/kv_events.h"

#include <algorithm>

#include "dataplane/base/check.h"

namespace tidepool::prefix {

KvEventLog::KvEventLog(size_t capacity) : ring_(capacity) {
  CHECK(capacity > 0);
}

void KvEventLog::Append(KvEvent::Kind kind, const StoredBlock& block) {
  ring_[next_sequence_ % ring_.size()] = {
      .sequence = next_sequence_, .kind = kind, .block = block};
  ++next_sequence_;
}

bool KvEventLog::Read(uint64_t from, size_t max,
                      std::vector<KvEvent>& events) const {
  const uint64_t kept = std::min<uint64_t>(next_sequence_ - 1, ring_.size());
  if (from > next_sequence_ || from < next_sequence_ - kept) return false;
  const uint64_t end = from + std::min<uint64_t>(max, next_sequence_ - from);
  for (uint64_t n = from; n < end; ++n) {
    events.push_back(ring_[n % ring_.size()]);
  }
  return true;
}

}  // namespace tidepool::prefix
