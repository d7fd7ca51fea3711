// Matches of a pattern, and what splitting does with them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>

#include "absl/functional/function_ref.h"
#include "dataplane/base/status.h"
#include "dataplane/model/pretokenizer_regex.h"
#include "dataplane/model/tokenizer_spec.h"

namespace tidepool::model::internal {

// Takes [start, end) of the text; an error stops.
using RangeSink = absl::FunctionRef<Status(size_t start, size_t end)>;
using MatchSink =
    absl::FunctionRef<Status(size_t start, size_t end, bool matched)>;

// A literal or a regular expression. Thread-safe.
class Matcher {
 public:
  // `field` names the pattern in errors. Errors: as Regex::Compile.
  static StatusOr<Matcher> Create(const Pattern& pattern,
                                  std::string_view field);

  // Gives the matches of `text` and what is between them to `sink`, in order
  // and without gaps.
  Status ForEach(std::string_view text, MatchSink sink) const;

 private:
  explicit Matcher(std::variant<std::string, Regex> pattern)
      : pattern_(std::move(pattern)) {}
  StatusOr<std::optional<RegexMatch>> Find(std::string_view text,
                                           size_t from) const;

  std::variant<std::string, Regex> pattern_;
};

// Turns matches and what is between them into pieces, as `behavior` says.
// Externally synchronized.
class Splitter {
 public:
  Splitter(SplitBehavior behavior, RangeSink sink)
      : behavior_(behavior), sink_(sink) {}

  // The next range, matched or not; ranges leave no gaps.
  Status Add(size_t start, size_t end, bool matched);
  // After the last range.
  Status Finish();

 private:
  Status Hold(size_t start, size_t end);

  const SplitBehavior behavior_;
  RangeSink sink_;
  bool holding_ = false;  // [held_start_, held_end_) may still grow
  size_t held_start_ = 0;
  size_t held_end_ = 0;
  bool previous_matched_ = false;
};

}  // namespace tidepool::model::internal
