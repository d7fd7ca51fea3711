#include "dataplane/base/status.h"

#include <cerrno>
#include <cstring>
#include <string>

namespace tidepool {

Status Annotate(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  return MakeError(status.code(), "{}: {}", context, MessageOf(status));
}

Status ErrnoError(int error_number, std::string_view what) {
  char buffer[128];
  // The GNU form: returns the text, which may or may not be in `buffer`.
  const char* text = strerror_r(error_number, buffer, sizeof(buffer));
  Code code = Code::kUnavailable;
  switch (error_number) {
    case ENOENT:
      code = Code::kNotFound;
      break;
    case EACCES:
    case EPERM:
      code = Code::kPermissionDenied;
      break;
    case EEXIST:
    case EADDRINUSE:
      code = Code::kAlreadyExists;
      break;
    case EINVAL:
      code = Code::kInvalidArgument;
      break;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
      code = Code::kResourceExhausted;
      break;
    case ETIMEDOUT:
      code = Code::kDeadlineExceeded;
      break;
    default:
      break;
  }
  return MakeError(code, "{}: {}", what, text);
}

}  // namespace tidepool
