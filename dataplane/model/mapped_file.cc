#include "dataplane/model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "dataplane/base/unique_fd.h"

namespace tidepool::model {

StatusOr<MappedFile> MappedFile::Open(std::string path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT) return NotFound("{}: no such file", path);
    return ErrnoError(errno, fmt::format("open {}", path));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return ErrnoError(errno, fmt::format("stat {}", path));
  if (!S_ISREG(info.st_mode))
    return InvalidArgument("{}: not a regular file", path);
  if (info.st_size == 0) return InvalidArgument("{}: empty", path);
  const auto size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED)
    return ErrnoError(errno, fmt::format("map {}", path));
  return MappedFile(std::move(path),
                    {static_cast<const std::byte*>(address), size});
}

MappedFile::MappedFile(std::string path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty())
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace tidepool::model
