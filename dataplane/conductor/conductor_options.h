// The options of `tidepool-conductor`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/serving_options.h"
#include "dataplane/base/status.h"
#include "dataplane/conductor/dns_watcher.h"
#include "dataplane/conductor/fleet_backend.h"
#include "dataplane/conductor/gateway.h"
#include "dataplane/conductor/http_server.h"
#include "dataplane/rpc/tls_options.h"

namespace tidepool::conductor {

struct ConductorConfig : ModelOptions,
                         EdgeOptions,
                         ProcessOptions,
                         rpc::TlsOptions {
  std::vector<std::string> workers;   // [NAME=]HOST:PORT
  std::vector<std::string> discover;  // HOST:PORT
  std::string control_host;           // "" is `host`
  int64_t control_port = -1;          // of FleetService; -1: none
  // After SIGTERM, while others learn that no more requests should come.
  int64_t drain_delay_s = 0;

  HttpServerOptions http;  // host and port as in EdgeOptions
  int64_t tokenizer_threads = 1;
  Duration request_timeout = std::chrono::minutes(10);
  int64_t max_requests = 8192;
  int64_t max_waiting_requests = 2048;
};

// nullopt if the command line was answered (--help…).
// Errors: kInvalidArgument naming the option.
StatusOr<std::optional<ConductorConfig>> ParseConductorOptions(
    int argc, const char* const* argv);

// "NAME=HOST:PORT" or "HOST:PORT", which is then the name, too.
// Errors: kInvalidArgument.
StatusOr<FleetWorker> ParseWorker(std::string_view text);
// All of them. Errors: those of ParseWorker; kInvalidArgument for a name that
// is given twice.
StatusOr<std::vector<FleetWorker>> ParseWorkers(
    const std::vector<std::string>& texts);

// "HOST:PORT" each. Errors: kInvalidArgument.
StatusOr<std::vector<DnsName>> ParseDiscover(
    const std::vector<std::string>& texts);

// The keys of flags and file.
// Errors: those of ApiKeys; kInvalidArgument if `host` is beyond loopback and
// there are neither keys nor `no_auth`.
StatusOr<ApiKeys> LoadApiKeys(const ConductorConfig& config);

}  // namespace tidepool::conductor
