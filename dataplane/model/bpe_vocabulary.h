// Tokens by id and ids by token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tidepool::model::internal {

// Strings by number, in one piece of memory. Externally synchronized while
// built, then immutable.
class StringTable {
 public:
  void Reserve(size_t strings, size_t bytes);
  // The next number is the count of strings before.
  void Add(std::string_view text);

  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t index) const {
    const size_t start = index == 0 ? 0 : ends_[index - 1];
    return {bytes_.data() + start, ends_[index] - start};
  }

 private:
  std::string bytes_;
  std::vector<size_t> ends_;
};

// Finds numbers of a StringTable, which must outlive it, by their strings,
// without allocation. Immutable and thread-safe after building.
class StringIndex {
 public:
  // For at most `strings` strings.
  StringIndex(const StringTable& table, size_t strings);

  // False, and nothing changes, if an equal string is there already.
  bool Add(int32_t number);
  std::optional<int32_t> Find(std::string_view text) const;

 private:
  struct Slot {
    uint32_t tag = 0;  // part of the hash
    int32_t number = -1;
  };
  // The slot that holds `text`, or the free one where it belongs.
  size_t Locate(std::string_view text, uint32_t* tag) const;

  const StringTable& table_;
  std::vector<Slot> slots_;
  size_t mask_;
};

}  // namespace tidepool::model::internal
