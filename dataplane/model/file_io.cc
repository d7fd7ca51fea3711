#include "dataplane/model/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tidepool::model {

StatusOr<RegularFile> OpenRegularFile(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT) return NotFound("{}: no such file", path);
    return ErrnoError(errno, fmt::format("open {}", path));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return ErrnoError(errno, fmt::format("stat {}", path));
  if (!S_ISREG(info.st_mode))
    return InvalidArgument("{}: not a regular file", path);
  return RegularFile{.fd = std::move(file),
                     .bytes = static_cast<uint64_t>(info.st_size)};
}

StatusOr<std::string> ReadSmallFile(const std::string& path,
                                    uint64_t bytes_max) {
  ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  if (file.bytes > bytes_max) {
    return ResourceExhausted("{}: {} bytes are over the limit of {}", path,
                             file.bytes, bytes_max);
  }
  std::string content(file.bytes, '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got =
        ::read(file.fd.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, fmt::format("read {}", path));
    if (got == 0) return DataLoss("{}: shrank while being read", path);
    done += static_cast<size_t>(got);
  }
  return content;
}

}  // namespace tidepool::model
