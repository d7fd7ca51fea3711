#include "dataplane/model/tokenizer_added.h"

#include <algorithm>
#include <cstring>

#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {
namespace {

bool TouchesWord(std::string_view text, size_t start, size_t end) {
  if (start > 0 &&
      (FlagsOf(DecodeCharBefore(text.data() + start).value) & kWord) != 0) {
    return true;
  }
  return end < text.size() &&
         (FlagsOf(DecodeChar(text.data() + end).value) & kWord) != 0;
}

size_t SpaceStartBefore(std::string_view text, size_t end, size_t minimum) {
  while (end > minimum) {
    const DecodedChar c = DecodeCharBefore(text.data() + end);
    if ((FlagsOf(c.value) & kSpace) == 0) break;
    end -= c.bytes;
  }
  return end;
}

size_t SpaceEndAfter(std::string_view text, size_t start) {
  while (start < text.size()) {
    const DecodedChar c = DecodeChar(text.data() + start);
    if ((FlagsOf(c.value) & kSpace) == 0) break;
    start += c.bytes;
  }
  return start;
}

}  // namespace

uint32_t AddedTokenFinder::ChildOf(uint32_t node, char byte) const {
  uint32_t child = nodes_[node].child;
  while (child != kNone && nodes_[child].byte != byte) {
    child = nodes_[child].sibling;
  }
  return child;
}

Status AddedTokenFinder::Add(std::string_view pattern,
                             const AddedToken& token) {
  uint32_t node = 0;
  for (const char byte : pattern) {
    uint32_t child = ChildOf(node, byte);
    if (child == kNone) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[node].child, .byte = byte});
      nodes_[node].child = child;
    }
    node = child;
  }
  if (nodes_[node].token != nullptr) {
    return InvalidArgument(
        "tokenizer.json: added_tokens: \"{}\" and \"{}\" match the same text",
        nodes_[node].token->content, token.content);
  }
  nodes_[node].token = &token;
  first_bytes_.set(static_cast<unsigned char>(pattern[0]));
  return OkStatus();
}

size_t AddedTokenFinder::NextCandidate(std::string_view text,
                                       size_t from) const {
  const uint32_t only = nodes_[0].child;
  if (only == kNone) return text.size();
  if (nodes_[only].sibling == kNone) {
    return std::min(text.find(nodes_[only].byte, from), text.size());
  }
  while (from < text.size() &&
         !first_bytes_[static_cast<unsigned char>(text[from])]) {
    ++from;
  }
  return from;
}

const AddedToken* AddedTokenFinder::Match(std::string_view text, size_t start,
                                          size_t* end) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (size_t at = start; at < text.size(); ++at) {
    node = ChildOf(node, text[at]);
    if (node == kNone) break;
    if (nodes_[node].token == nullptr) continue;
    longest = nodes_[node].token;
    *end = at + 1;
  }
  return longest;
}

Status AddedTokenFinder::Split(std::string_view text, bool parse_special,
                               Sink sink) const {
  size_t given = 0;  // up to here
  for (size_t at = NextCandidate(text, 0); at < text.size();
       at = NextCandidate(text, at)) {
    size_t end = 0;
    const AddedToken* token = Match(text, at, &end);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t start = at;
    at = end;  // even if it does not count
    if (token->special && !parse_special) continue;
    if (token->single_word && TouchesWord(text, start, end)) continue;
    // The token before may have taken the space already, and even the start.
    if (token->lstrip) start = SpaceStartBefore(text, start, given);
    if (token->rstrip) end = SpaceEndAfter(text, end);
    if (given < start) RETURN_IF_ERROR(sink(given, start, nullptr));
    RETURN_IF_ERROR(sink(start, end, token));
    given = end;
  }
  if (given < text.size()) return sink(given, text.size(), nullptr);
  return OkStatus();
}

}  // namespace tidepool::model::internal
