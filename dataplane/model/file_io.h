// Files of a model folder.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::model {

struct RegularFile {
  UniqueFd fd;  // at its start
  uint64_t bytes = 0;
};

// Opens a regular file to read it.
// Errors: kNotFound; kInvalidArgument if it is no regular file; those of
// `errno`. Each names `path`.
StatusOr<RegularFile> OpenRegularFile(const std::string& path);

// The content of a regular file. Errors: as OpenRegularFile;
// kResourceExhausted over `bytes_max`.
StatusOr<std::string> ReadSmallFile(const std::string& path,
                                    uint64_t bytes_max = 64 << 20);

}  // namespace tidepool::model
