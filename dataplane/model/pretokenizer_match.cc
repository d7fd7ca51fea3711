#include "dataplane/model/pretokenizer_match.h"

#include <utility>

#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {

StatusOr<Matcher> Matcher::Create(const Pattern& pattern,
                                  std::string_view field) {
  if (!pattern.is_regex) return Matcher(pattern.text);
  ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern.text, field));
  return Matcher(std::move(regex));
}

StatusOr<std::optional<RegexMatch>> Matcher::Find(std::string_view text,
                                                  size_t from) const {
  if (const auto* regex = std::get_if<Regex>(&pattern_)) {
    return regex->Find(text, from);
  }
  const auto& literal = std::get<std::string>(pattern_);
  const size_t start = text.find(literal, from);
  if (start == std::string_view::npos) return std::optional<RegexMatch>();
  return std::optional(RegexMatch{start, start + literal.size()});
}

Status Matcher::ForEach(std::string_view text, MatchSink sink) const {
  size_t given = 0;   // up to here
  size_t search = 0;  // from here
  std::optional<size_t> match_end;
  while (search <= text.size()) {
    ASSIGN_OR_RETURN(const std::optional<RegexMatch> match, Find(text, search));
    if (!match.has_value()) break;
    if (match->start == match->end && match->end == match_end) {
      // An empty match right behind another does not count.
      search += search < text.size() ? DecodeChar(text.data() + search).bytes
                                     : size_t{1};
      continue;
    }
    search = match->end;
    match_end = match->end;
    if (given < match->start) RETURN_IF_ERROR(sink(given, match->start, false));
    RETURN_IF_ERROR(sink(match->start, match->end, true));
    given = match->end;
  }
  if (given < text.size()) return sink(given, text.size(), false);
  return OkStatus();
}

Status Splitter::Hold(size_t start, size_t end) {
  RETURN_IF_ERROR(Finish());
  holding_ = true;
  held_start_ = start;
  held_end_ = end;
  return OkStatus();
}

Status Splitter::Finish() {
  if (!std::exchange(holding_, false) || held_start_ == held_end_) {
    return OkStatus();
  }
  return sink_(held_start_, held_end_);
}

Status Splitter::Add(size_t start, size_t end, bool matched) {
  const bool previous_matched = std::exchange(previous_matched_, matched);
  bool join = false;
  switch (behavior_) {
    case SplitBehavior::kRemoved:
      if (matched) return OkStatus();
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kContiguous:
      join = matched == previous_matched;
      break;
    case SplitBehavior::kMergedWithPrevious:
      join = matched && !previous_matched;
      break;
    case SplitBehavior::kMergedWithNext:
      join = !matched && previous_matched;
      break;
  }
  if (!join || !holding_) return Hold(start, end);
  held_end_ = end;
  return OkStatus();
}

}  // namespace tidepool::model::internal
