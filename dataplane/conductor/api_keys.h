// Who may use the API.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/digest.h"
#include "dataplane/base/status.h"

namespace tidepool::conductor {

// A set of keys of which only digests are kept. Immutable and thread-safe.
class ApiKeys {
 public:
  // No keys: everybody may.
  ApiKeys() = default;
  // Errors: kInvalidArgument for a key that is empty, too long, or begins or
  // ends with a blank.
  static StatusOr<ApiKeys> Create(const std::vector<std::string>& keys);
  // One key a line; blank lines and lines that start with `#` do not count.
  // Errors: kNotFound, kInvalidArgument naming the file (also when it has no
  // key).
  static StatusOr<std::vector<std::string>> ReadFile(const std::string& path);

  bool required() const { return !digests_.empty(); }
  // `authorization` is the header's value, "Bearer KEY". Takes as long for
  // every key of that length.
  bool Allows(std::string_view authorization) const;

 private:
  std::vector<Sha256Digest> digests_;
};

}  // namespace tidepool::conductor
