#include "dataplane/conductor/backend.h"

#include "dataplane/conductor/api_error.h"

namespace tidepool::conductor {

Status StatusOf(EndReason reason, std::string_view message) {
  const std::string_view text = message.empty() ? NameOf(reason) : message;
  switch (reason) {
    case EndReason::kFinished:
      return OkStatus();
    case EndReason::kCancelled:
      return MakeError(Code::kCancelled, "{}", text);
    case EndReason::kInvalid:
      return InvalidArgument("{}", text);
    case EndReason::kNoRoom:
      return WithApiDetails(ResourceExhausted("{}", text), "", "overloaded");
    case EndReason::kNoReadyWorker:
    case EndReason::kAttemptsSpent:
    case EndReason::kShutdown:
      return WithApiDetails(Unavailable("{}", text), "", NameOf(reason));
    case EndReason::kExpired:
      return WithApiDetails(DeadlineExceeded("{}", text), "", NameOf(reason));
  }
  return Internal("{}", text);
}

std::string_view RoleName(const WorkerStatus& worker) {
  switch (worker.description.role()) {
    case wire::ROLE_PREFILL:
      return "prefill";
    case wire::ROLE_DECODE:
      return "decode";
    default:
      return "unknown";
  }
}

}  // namespace tidepool::conductor
