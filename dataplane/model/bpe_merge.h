// The merging at the heart of byte pair encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/model/bpe_merge_table.h"

namespace tidepool::model::internal {

// Merges neighbours in `ids`, always the pair of lowest rank and of those the
// leftmost, until none merges. Returns how many ids are left at the front.
// O(n log n).
size_t MergeAll(const MergeTable& merges, std::span<int32_t> ids);

}  // namespace tidepool::model::internal
