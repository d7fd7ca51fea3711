// Finds added tokens in text.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "dataplane/base/status.h"
#include "dataplane/model/tokenizer.h"

namespace tidepool::model::internal {

// Immutable and thread-safe after the last Add.
class AddedTokenFinder {
 public:
  // Looks for `pattern`, not empty, as `token`, which must outlive the finder.
  // Errors: kInvalidArgument if another token has the same pattern.
  Status Add(std::string_view pattern, const AddedToken& token);

  // Takes a part of the text, not empty: the token that it is, or null for
  // what is between. An error stops.
  using Sink = absl::FunctionRef<Status(size_t start, size_t end,
                                        const AddedToken* token)>;

  // Cuts `text`, valid UTF-8, at the leftmost longest tokens. Without
  // `parse_special` special tokens are found but left in the text, so that
  // nothing else is found within them. O(text · longest pattern).
  Status Split(std::string_view text, bool parse_special, Sink sink) const;

 private:
  static constexpr uint32_t kNone = 0;
  // A trie by bytes; the children of a node are a list of siblings.
  struct Node {
    const AddedToken* token = nullptr;
    uint32_t child = kNone;
    uint32_t sibling = kNone;
    char byte = 0;
  };

  uint32_t ChildOf(uint32_t node, char byte) const;
  // Where a token may start, at or after `from`; text.size() if nowhere.
  size_t NextCandidate(std::string_view text, size_t from) const;
  // The longest token that starts at `start`, and its end.
  const AddedToken* Match(std::string_view text, size_t start,
                          size_t* end) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::bitset<256> first_bytes_;
};

}  // namespace tidepool::model::internal
