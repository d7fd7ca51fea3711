// Finds stop strings in text that arrives in pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tidepool::conductor {

// The first place where a stop string is complete ends the text, wherever the
// pieces are cut; of several that end there, the longest counts. Text that may
// still become part of a stop string is held back, nothing else is.
// Time is linear in text × stop strings. Externally synchronized.
class StopMatcher {
 public:
  // None of `stops` is empty.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Result {
    std::string text;  // before the stop string, if one was found
    const std::string* stop = nullptr;
  };
  // Once a stop string was found, the object is spent.
  Result Append(std::string_view text);

  // What was held back: no more text will come, or none that counts.
  std::string Release();

 private:
  struct Pattern {
    std::string text;
    // Length of the longest proper border of each prefix (Knuth, Morris,
    // Pratt).
    std::vector<size_t> borders;
    size_t matched = 0;  // of `text`, at the end of what was seen
  };
  static void Advance(Pattern& pattern, char c);

  std::vector<Pattern> patterns_;
  std::string held_;
};

}  // namespace tidepool::conductor
