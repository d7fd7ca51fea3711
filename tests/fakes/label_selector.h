#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "controller/kube/client.h"
#include "dataplane/base/status.h"

namespace tidepool::fakes {

// "a=b,c!=d,e in (x,y),f notin (z),g,!h".
class LabelSelector {
 public:
  // Errors: kInvalidArgument.
  static StatusOr<LabelSelector> Parse(std::string_view text);

  bool Matches(const kube::Json& object) const;

 private:
  enum class Kind { kIn, kNotIn, kExists, kAbsent };
  struct Term {
    Kind kind;
    std::string label;
    std::set<std::string> values;
  };
  static StatusOr<Term> ParseTerm(std::string_view text);

  std::vector<Term> terms_;
};

}  // namespace tidepool::fakes
