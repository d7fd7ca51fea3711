// Server-side apply, as far as the ApiServer has it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/kube/client.h"

namespace tidepool::fakes {

// Keys from the root to a field; an element of a keyed list is named by what
// tells it from the others, "[name=x]".
using FieldPath = std::vector<std::string>;
using FieldSet = std::set<FieldPath>;

// Who has set what. Externally synchronized.
class FieldOwnership {
 public:
  // `object` with `applied` merged into it, and without what `manager` applied
  // before, and nobody else owns, but does not apply now.
  kube::Json Apply(const std::string& manager, const kube::Json& object,
                   const kube::Json& applied);

  // Another write made `after` of `before`: what it changed is now `manager`'s
  // alone.
  void Update(const std::string& manager, const kube::Json& before,
              const kube::Json& after);

 private:
  bool OwnedByOthers(const std::string& manager, const FieldPath& path) const;

  std::map<std::string, FieldSet> fields_;
};

}  // namespace tidepool::fakes
