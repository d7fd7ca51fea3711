#pragma once

#include <string>

#include "dataplane/base/status.h"

namespace tidepool::kube::internal {

// Errors: kNotFound, kInvalidArgument (more than `bytes_max`), kUnavailable;
// all name the path.
StatusOr<std::string> ReadSmallFile(const std::string& path, size_t bytes_max);

}  // namespace tidepool::kube::internal
