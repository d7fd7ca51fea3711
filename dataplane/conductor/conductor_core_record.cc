// What is told of a request when it is asked for.
#include "dataplane/conductor/conductor_core.h"

namespace tidepool::conductor {
namespace {

double SecondsBetween(TimePoint from, TimePoint to) {
  return Seconds(to - from).count();
}

std::string Explain(const AttemptRecord& attempt, TimePoint arrived) {
  std::string text = fmt::format("attempt {}: ", attempt.attempt);
  if (!attempt.prefill_worker.empty()) {
    text += fmt::format("{} → ", attempt.prefill_worker);
  }
  text += fmt::format("{} ({}: {}) started at {:.3f} s", attempt.decode_worker,
                      NameOf(attempt.placement_reason), attempt.explanation,
                      SecondsBetween(arrived, attempt.started));
  if (attempt.handed_over.has_value()) {
    text += fmt::format(", handed over {} bytes by {} at {:.3f} s",
                        attempt.transferred_bytes, attempt.transport,
                        SecondsBetween(arrived, *attempt.handed_over));
  }
  if (attempt.first_output.has_value()) {
    text += fmt::format(", first output at {:.3f} s",
                        SecondsBetween(arrived, *attempt.first_output));
  }
  if (attempt.failed.has_value()) {
    text +=
        fmt::format(", failed at {:.3f} s: {}",
                    SecondsBetween(arrived, *attempt.failed), attempt.failure);
  }
  return text;
}

}  // namespace

std::string_view NameOf(EndReason reason) {
  switch (reason) {
    case EndReason::kFinished:
      return "finished";
    case EndReason::kCancelled:
      return "cancelled";
    case EndReason::kInvalid:
      return "invalid";
    case EndReason::kNoRoom:
      return "no_room";
    case EndReason::kNoReadyWorker:
      return "no_ready_worker";
    case EndReason::kAttemptsSpent:
      return "attempts_spent";
    case EndReason::kExpired:
      return "expired";
    case EndReason::kShutdown:
      return "shutdown";
  }
  return "unknown";
}

std::string RequestRecord::Explain() const {
  std::string text;
  for (const AttemptRecord& attempt : attempts) {
    if (!text.empty()) text += "; ";
    text += conductor::Explain(attempt, arrived);
  }
  if (attempts.empty()) text = "never placed";
  if (overloads > 0) text += fmt::format("; {} refused for room", overloads);
  if (end_reason.has_value()) {
    text += fmt::format("; {} at {:.3f} s", NameOf(*end_reason),
                        SecondsBetween(arrived, *ended));
  }
  return text;
}

}  // namespace tidepool::conductor
