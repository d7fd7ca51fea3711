// The options of `tidepool-conductor`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/log.h"
#include "dataplane/base/status.h"
#include "dataplane/conductor/fleet_backend.h"
#include "dataplane/conductor/gateway.h"
#include "dataplane/conductor/http_server.h"

namespace tidepool::conductor {

struct ConductorConfig {
  std::string model;
  std::vector<std::string> served_model_names;
  int64_t max_model_len = 0;  // 0: as the model says
  std::string download_dir;

  std::vector<std::string> workers;  // [NAME=]HOST:PORT
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool no_auth = false;

  HttpServerOptions http;
  int64_t tokenizer_threads = 1;
  Duration request_timeout = std::chrono::minutes(10);
  int64_t max_requests = 8192;
  int64_t max_waiting_requests = 2048;
  int64_t drain_timeout_s = 30;
  std::string ready_file;
  LogOptions log;
};

// nullopt if the command line was answered (--help…).
// Errors: kInvalidArgument naming the option.
StatusOr<std::optional<ConductorConfig>> ParseConductorOptions(
    int argc, const char* const* argv);

// "NAME=HOST:PORT" or "HOST:PORT", which is then the name, too.
// Errors: kInvalidArgument.
StatusOr<FleetWorker> ParseWorker(std::string_view text);

// The keys of flags and file.
// Errors: those of ApiKeys; kInvalidArgument if `host` is beyond loopback and
// there are neither keys nor `no_auth`.
StatusOr<ApiKeys> LoadApiKeys(const ConductorConfig& config);

}  // namespace tidepool::conductor
