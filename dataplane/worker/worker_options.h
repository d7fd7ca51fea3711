// What a worker can be told, as flags, YAML keys and Helm values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/base/serving_options.h"
#include "dataplane/base/status.h"
#include "dataplane/rpc/tls_options.h"

namespace tidepool::worker {

struct WorkerOptions : ModelOptions,
                       EngineOptions,
                       ProcessOptions,
                       rpc::TlsOptions {
  std::string served_model_name;  // "" takes the model's own
  std::string role = "decode";
  std::string host = "127.0.0.1";
  // What other processes connect to; "" is `host`.
  std::string advertise_host;
  int64_t port = 0;           // of the control address; 0 takes a free one
  int64_t transfer_port = 0;  // of the messenger
  int64_t metrics_port = -1;  // of /metrics, /health, /ready; -1: none
  std::string name;           // for people; "" is the host's
  int64_t step_timeout_s = 600;
};

// nullopt if the answer to the arguments was printed (--help, --version…).
// Errors: kInvalidArgument naming flag or key and why; kNotFound (--config).
StatusOr<std::optional<WorkerOptions>> ParseWorkerOptions(
    int argc, const char* const* argv);

}  // namespace tidepool::worker
