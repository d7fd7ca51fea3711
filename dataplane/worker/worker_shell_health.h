// What the orchestrator's probes are told.
#pragma once

#include <optional>

#include "dataplane/base/clock.h"
#include "dataplane/base/http_endpoints.h"
#include "dataplane/worker/worker_shell_runtime.h"

namespace tidepool::worker {

// /health: 503 if the core's thread or a step has made no progress for too
// long, which only a restart mends. A model that loads is healthy (`worker` is
// then absent): what cannot be loaded ends the process.
HttpAnswer HealthAnswer(const std::optional<WorkerSnapshot>& worker,
                        Duration step_timeout, TimePoint now);

// /ready: 200 while the model is loaded and work is taken, in whatever role,
// also while the role changes; else 503 with the reason.
HttpAnswer ReadyAnswer(const wire::DescribeResponse& description);

}  // namespace tidepool::worker
