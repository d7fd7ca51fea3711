#include "dataplane/model/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "dataplane/base/unique_fd.h"

namespace tidepool::model {

StatusOr<std::string> ReadSmallFile(const std::string& path,
                                    uint64_t bytes_max) {
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
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > bytes_max) {
    return ResourceExhausted("{}: {} bytes are over the limit of {}", path,
                             size, bytes_max);
  }
  std::string content(size, '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got =
        ::read(file.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, fmt::format("read {}", path));
    if (got == 0) return DataLoss("{}: shrank while being read", path);
    done += static_cast<size_t>(got);
  }
  return content;
}

}  // namespace tidepool::model
