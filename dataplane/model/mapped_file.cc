#include "dataplane/model/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "dataplane/model/file_io.h"

namespace tidepool::model {

StatusOr<MappedFile> MappedFile::Open(std::string path) {
  ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  if (file.bytes == 0) return InvalidArgument("{}: empty", path);
  const auto size = static_cast<size_t>(file.bytes);
  void* address =
      ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
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
