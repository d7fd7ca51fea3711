#include "dataplane/worker/worker_shell_health.h"

#include <string>

namespace tidepool::worker {
namespace {

// The core's thread never waits for anything but its inbox.
constexpr Duration kTurnTimeout = std::chrono::seconds(30);

HttpAnswer Json(int status, std::string body) {
  return {.status = status,
          .content_type = "application/json",
          .body = std::move(body) + "\n"};
}

std::string_view NameOf(wire::Role role) {
  return role == wire::ROLE_PREFILL ? "prefill" : "decode";
}

}  // namespace

HttpAnswer HealthAnswer(const std::optional<WorkerSnapshot>& worker,
                        Duration step_timeout, TimePoint now) {
  if (worker.has_value()) {
    if (now - worker->turned_at > kTurnTimeout)
      return Json(503,
                  fmt::format(R"({{"healthy":false,"reason":"no message was )"
                              R"(handled for {:.0f} s"}})",
                              Seconds(now - worker->turned_at).count()));
    if (worker->step_since && now - *worker->step_since > step_timeout)
      return Json(503,
                  fmt::format(R"({{"healthy":false,"reason":"a step has run )"
                              R"(for {:.0f} s"}})",
                              Seconds(now - *worker->step_since).count()));
  }
  return Json(200, R"({"healthy":true})");
}

HttpAnswer ReadyAnswer(const wire::DescribeResponse& description) {
  const std::string_view role = NameOf(description.role());
  if (description.draining())
    return Json(503, R"({"ready":false,"reason":"draining"})");
  if (!description.ready())
    return Json(503, fmt::format(R"({{"ready":false,"reason":"the model is )"
                                 R"(loading","load_progress":{:.3f}}})",
                                 description.load_progress()));
  const wire::Role target = description.role_state().target();
  if (target == wire::ROLE_UNSPECIFIED)
    return Json(200, fmt::format(R"({{"ready":true,"role":"{}"}})", role));
  return Json(200, fmt::format(R"({{"ready":true,"role":"{}","target":"{}"}})",
                               role, NameOf(target)));
}

}  // namespace tidepool::worker
