// `/metrics` of a worker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dataplane/base/status.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/worker/worker_shell_runtime.h"

namespace tidepool::worker {

struct MetricsSource {
  double loaded = 0;                     // share of the model, 1 when ready
  std::optional<WorkerSnapshot> worker;  // once the model is loaded
  transfer::MessengerStats transfer;
};

// Serves what `collect` says, in the text format of Prometheus, on threads of
// its own.
class MetricsServer {
 public:
  // `port` 0 takes a free one. Errors: kUnavailable (port in use).
  static StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& host, uint16_t port,
      std::function<MetricsSource()> collect);
  virtual ~MetricsServer() = default;

  virtual uint16_t port() const = 0;
};

}  // namespace tidepool::worker
