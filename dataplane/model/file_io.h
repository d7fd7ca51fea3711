// Small files whole.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/status.h"

namespace tidepool::model {

// The content of a regular file.
// Errors: kNotFound; kResourceExhausted over `bytes_max`; kInvalidArgument if
// it is no regular file; those of `errno`. Each names `path`.
StatusOr<std::string> ReadSmallFile(const std::string& path,
                                    uint64_t bytes_max = 64 << 20);

}  // namespace tidepool::model
