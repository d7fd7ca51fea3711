#include "controller/kube/api_error.h"

#include <string>

#include "controller/kube/json_fields.h"

namespace tidepool::kube::internal {
namespace {

constexpr size_t kMessageBytesMax = 2048;

Code CodeOf(long http_code, std::string_view reason) {
  switch (http_code) {
    case 401:
      return Code::kUnauthenticated;
    case 403:
      return Code::kPermissionDenied;
    case 404:
      return Code::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? Code::kAlreadyExists : Code::kAborted;
    case 410:
      return Code::kOutOfRange;
    case 429:
      return Code::kResourceExhausted;
    default:
      break;
  }
  if (http_code >= 400 && http_code < 500) return Code::kInvalidArgument;
  return Code::kUnavailable;
}

Status Make(long http_code, std::string_view reason, std::string_view message,
            std::string_view attempt) {
  return MakeError(CodeOf(http_code, reason), "{}: {} ({}{}{})", attempt,
                   message.substr(0, kMessageBytesMax), http_code,
                   reason.empty() ? "" : " ", reason);
}

}  // namespace

Status ApiError(const Json& status, std::string_view attempt) {
  long code = IntegerAt(status, "code", 500);
  // Some servers tell of an expired version by its reason alone.
  const std::string reason = TextAt(status, "reason");
  if (reason == "Expired" || reason == "Gone") code = 410;
  return Make(code, reason, TextAt(status, "message"), attempt);
}

Status ApiError(long http_code, std::string_view body,
                std::string_view attempt) {
  const Json parsed = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  // What it says of an API group that is not installed.
  if (body.starts_with("404 page not found"))
    body = "the cluster has no such kind";
  if (!parsed.is_object()) return Make(http_code, "", body, attempt);
  return Make(http_code, TextAt(parsed, "reason"), TextAt(parsed, "message"),
              attempt);
}

}  // namespace tidepool::kube::internal
