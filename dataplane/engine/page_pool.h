// Who uses which page of L1.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/check.h"
#include "dataplane/engine/kv_layout.h"

namespace tidepool::engine {

// Counts the users of each page: sequences and the prefix cache. A page that
// has none is free. Externally synchronized; allocates at construction only.
class PagePool {
 public:
  explicit PagePool(int32_t num_pages) : users_(num_pages) {
    free_.reserve(num_pages);
    for (PageId page = num_pages - 1; page >= 0; --page) free_.push_back(page);
  }

  // A page without users gets its first; there is one.
  PageId Take() {
    CHECK(!free_.empty());
    const PageId page = free_.back();
    free_.pop_back();
    users_[page] = 1;
    return page;
  }
  // One more user of a page in use.
  void Share(PageId page) {
    CHECK(users_[page] > 0);
    ++users_[page];
  }
  // One user less.
  void Drop(PageId page) {
    CHECK(users_[page] > 0);
    if (--users_[page] == 0) free_.push_back(page);
  }

  int32_t num_pages() const { return static_cast<int32_t>(users_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t users(PageId page) const { return users_[page]; }

 private:
  std::vector<PageId> free_;  // the last one is taken next
  std::vector<int32_t> users_;
};

}  // namespace tidepool::engine
