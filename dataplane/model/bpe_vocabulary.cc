#include "dataplane/model/bpe_vocabulary.h"

#include <algorithm>
#include <bit>

#include "dataplane/base/check.h"
#include "dataplane/base/digest.h"

namespace tidepool::model::internal {

void StringTable::Reserve(size_t strings, size_t bytes) {
  ends_.reserve(strings);
  bytes_.reserve(bytes);
}

void StringTable::Add(std::string_view text) {
  bytes_.append(text);
  ends_.push_back(bytes_.size());
}

StringIndex::StringIndex(const StringTable& table, size_t strings)
    : table_(table),
      // At most half full, so that a search always ends soon.
      slots_(std::bit_ceil(std::max<size_t>(2 * strings, 2))),
      mask_(slots_.size() - 1) {}

size_t StringIndex::Locate(std::string_view text, uint32_t* tag) const {
  const uint64_t hash = Checksum64(text);
  *tag = static_cast<uint32_t>(hash >> 32);
  size_t at = hash & mask_;
  while (slots_[at].number >= 0 &&
         (slots_[at].tag != *tag ||
          table_[static_cast<size_t>(slots_[at].number)] != text)) {
    at = (at + 1) & mask_;
  }
  return at;
}

bool StringIndex::Add(int32_t number) {
  uint32_t tag;
  const size_t at = Locate(table_[static_cast<size_t>(number)], &tag);
  if (slots_[at].number >= 0) return false;
  slots_[at] = {tag, number};
  return true;
}

std::optional<int32_t> StringIndex::Find(std::string_view text) const {
  uint32_t tag;
  const int32_t number = slots_[Locate(text, &tag)].number;
  if (number < 0) return std::nullopt;
  return number;
}

}  // namespace tidepool::model::internal
