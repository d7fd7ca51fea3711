// The shape of KV memory on a device (L1): `layer_first`.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/digest.h"

namespace tidepool::engine {

// Index of a page in one worker's pool.
using PageId = int32_t;

// How one (layer, page) pair, a *slice*, lies in memory:
//   [K then V][kv_head][token in page][dim], elements of `element_bytes`.
// A pool is [layer][page][slice], so one layer of a page is contiguous: it is
// what is streamed between workers. Rows of tokens not yet written hold
// anything, NaNs too, and never influence a result.
struct KvLayout {
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t page_tokens = 0;    // divides the block size
  int32_t element_bytes = 0;  // 4 in float32 mode, 2 in bfloat16 mode

  int64_t row_elements() const { return head_dim; }
  // Elements of K (or of V) in a slice.
  int64_t plane_elements() const {
    return int64_t{num_kv_heads} * page_tokens * head_dim;
  }
  int64_t slice_bytes() const { return 2 * plane_elements() * element_bytes; }
  // Bytes of all layers of a page.
  int64_t page_bytes() const { return num_layers * slice_bytes(); }
  // Where the slice of (layer, page) starts in a pool of `num_pages`.
  int64_t SliceOffset(int32_t layer, PageId page, int32_t num_pages) const {
    return (int64_t{layer} * num_pages + page) * slice_bytes();
  }

  bool operator==(const KvLayout&) const = default;
};

}  // namespace tidepool::engine
