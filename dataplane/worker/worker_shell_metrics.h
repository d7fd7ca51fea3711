// `/metrics` of a worker.
#pragma once

#include <optional>
#include <string>

#include "dataplane/transfer/messenger.h"
#include "dataplane/worker/worker_shell_runtime.h"

namespace tidepool::worker {

struct MetricsSource {
  double loaded = 0;                     // share of the model, 1 when ready
  std::optional<WorkerSnapshot> worker;  // once the model is loaded
  transfer::MessengerStats transfer;
};

// In the text format of Prometheus.
std::string RenderMetrics(const MetricsSource& source);

}  // namespace tidepool::worker
