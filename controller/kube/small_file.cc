#include "controller/kube/small_file.h"

#include <cerrno>
#include <fstream>

namespace tidepool::kube::internal {

StatusOr<std::string> ReadSmallFile(const std::string& path, size_t bytes_max) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoError(errno, fmt::format("reading `{}`", path));
  std::string text;
  char piece[4096];
  do {
    file.read(piece, sizeof(piece));
    text.append(piece, static_cast<size_t>(file.gcount()));
    if (text.size() > bytes_max)
      return InvalidArgument("`{}` is larger than {} bytes", path, bytes_max);
  } while (file);
  if (file.bad()) return Unavailable("reading `{}` failed", path);
  return text;
}

}  // namespace tidepool::kube::internal
