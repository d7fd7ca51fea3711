// A file in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "dataplane/base/status.h"

namespace tidepool::model {

// A regular file mapped read-only. Thread-safe after construction.
class MappedFile {
 public:
  // Errors: kNotFound; kInvalidArgument if it is no regular file or empty;
  // those of `errno`. Each names `path`.
  static StatusOr<MappedFile> Open(std::string path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes);

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace tidepool::model
