// Error values of the whole tree, and the macros that pass them on.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidepool {

using absl::Status;
using absl::StatusOr;
using Code = absl::StatusCode;

inline Status OkStatus() { return Status(); }

// An error with a formatted message. The message names what was attempted and
// the object or field it failed on.
template <typename... Args>
Status MakeError(Code code, fmt::format_string<Args...> format,
                 Args&&... args) {
  const std::string message = fmt::format(format, std::forward<Args>(args)...);
  return Status(code, message);
}

template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(Code::kInvalidArgument, format, std::forward<Args>(args)...);
}
template <typename... Args>
Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(Code::kNotFound, format, std::forward<Args>(args)...);
}
template <typename... Args>
Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(Code::kUnavailable, format, std::forward<Args>(args)...);
}
template <typename... Args>
Status ResourceExhausted(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(Code::kResourceExhausted, format,
                   std::forward<Args>(args)...);
}
template <typename... Args>
Status FailedPrecondition(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(Code::kFailedPrecondition, format,
                   std::forward<Args>(args)...);
}
template <typename... Args>
Status DeadlineExceeded(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(Code::kDeadlineExceeded, format,
                   std::forward<Args>(args)...);
}
template <typename... Args>
Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(Code::kUnimplemented, format, std::forward<Args>(args)...);
}
template <typename... Args>
Status DataLoss(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(Code::kDataLoss, format, std::forward<Args>(args)...);
}
template <typename... Args>
Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(Code::kInternal, format, std::forward<Args>(args)...);
}

// The message as the string view the rest of the tree uses.
inline std::string_view MessageOf(const Status& status) {
  return {status.message().data(), status.message().size()};
}

// `status` with `context: ` in front of its message; OK stays OK.
Status Annotate(const Status& status, std::string_view context);

// A kUnavailable or other fitting error for an `errno` value:
// "<what>: <strerror>".
Status ErrnoError(int error_number, std::string_view what);

}  // namespace tidepool

#define TIDEPOOL_CONCAT_INNER(a, b) a##b
#define TIDEPOOL_CONCAT(a, b) TIDEPOOL_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                           \
  do {                                                        \
    if (::tidepool::Status status_macro_value = (expression); \
        !status_macro_value.ok())                             \
      return status_macro_value;                              \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression)                        \
  TIDEPOOL_ASSIGN_OR_RETURN(TIDEPOOL_CONCAT(status_or_macro_, __LINE__), \
                            declaration, expression)
#define TIDEPOOL_ASSIGN_OR_RETURN(temporary, declaration, expression) \
  auto temporary = (expression);                                      \
  if (!temporary.ok()) return std::move(temporary).status();          \
  declaration = *std::move(temporary)
