// Stretches of text on their way to BPE.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace tidepool::model::internal {

// A view, how far memory behind its start may be read (for wide loads), and
// whether it is where the original text starts.
struct Piece {
  std::string_view text;
  size_t readable = 0;
  bool first = false;

  Piece Part(size_t start, size_t end) const {
    return {text.substr(start, end - start), readable - start,
            first && start == 0};
  }
};

// Pieces travel in batches of up to this many, so that the memory which one of
// them needs is fetched while others are worked on.
inline constexpr size_t kPieceBatch = 32;

}  // namespace tidepool::model::internal
