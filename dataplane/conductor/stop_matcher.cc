#include "dataplane/conductor/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace tidepool::conductor {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    Pattern pattern{.text = std::move(stop)};
    pattern.borders.resize(pattern.text.size() + 1);
    size_t border = 0;
    for (size_t i = 1; i < pattern.text.size(); ++i) {
      while (border > 0 && pattern.text[i] != pattern.text[border])
        border = pattern.borders[border];
      if (pattern.text[i] == pattern.text[border]) ++border;
      pattern.borders[i + 1] = border;
    }
    patterns_.push_back(std::move(pattern));
  }
}

void StopMatcher::Advance(Pattern& pattern, char c) {
  while (pattern.matched > 0 && pattern.text[pattern.matched] != c)
    pattern.matched = pattern.borders[pattern.matched];
  if (pattern.text[pattern.matched] == c) ++pattern.matched;
}

StopMatcher::Result StopMatcher::Append(std::string_view text) {
  if (patterns_.empty()) return {.text = std::string(text)};
  for (const char c : text) {
    held_.push_back(c);
    const Pattern* found = nullptr;
    for (Pattern& pattern : patterns_) {
      Advance(pattern, c);
      if (pattern.matched == pattern.text.size() &&
          (!found || pattern.text.size() > found->text.size()))
        found = &pattern;
    }
    if (!found) continue;
    held_.resize(held_.size() - found->text.size());
    return {.text = std::exchange(held_, {}), .stop = &found->text};
  }
  const size_t keep =
      std::ranges::max(patterns_, {}, &Pattern::matched).matched;
  Result result{.text = held_.substr(0, held_.size() - keep)};
  held_.erase(0, held_.size() - keep);
  return result;
}

std::string StopMatcher::Release() {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace tidepool::conductor
