#include "dataplane/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "dataplane/base/unique_fd.h"

namespace tidepool {
namespace {

Status WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError(errno, "write");
    content.remove_prefix(static_cast<size_t>(written));
  }
  return OkStatus();
}

}  // namespace

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  const std::string context = "writing " + path;
  // Beside the file, for only within a file system is a rename one step.
  const std::string partial = fmt::format("{}.{}.part", path, getpid());
  UniqueFd fd(
      open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) return ErrnoError(errno, context);
  Status status = WriteAll(fd.get(), content);
  // Some file systems tell only here that there is no room.
  if (close(fd.Release()) != 0 && status.ok())
    status = ErrnoError(errno, "close");
  if (status.ok() && rename(partial.c_str(), path.c_str()) != 0)
    status = ErrnoError(errno, "rename");
  if (!status.ok()) unlink(partial.c_str());
  return Annotate(status, context);
}

}  // namespace tidepool
