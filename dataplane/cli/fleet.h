// The processes behind `tidepool serve`: starts, watches, restarts, ends them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/cli/elastic.h"

namespace tidepool::cli {

struct FleetConfig {
  int64_t prefill = 1;  // 0: decode workers do both
  int64_t decode = 1;
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string model_name;  // for people
  // What every worker, and the conductor, is told besides roles, addresses and
  // ready files: YAML for their --config, kept from other users since it has
  // the API keys.
  std::string worker_config, conductor_config;
  // The conductor finishes its streams within this time after SIGTERM.
  int64_t drain_timeout_s = 30;
  // Roles follow the load; nullopt: they stay.
  std::optional<ElasticConfig> elastic;
  // Written as `{"url": …}` once requests are served; "" writes nothing.
  std::string ready_file;
};

// Runs the fleet until SIGINT or SIGTERM (a second one ends it at once), or
// until a process fails beyond repair. Blocks those signals in this thread and
// in threads started later. Prints children's lines to standard error, each
// behind its name, and one final line with the URL to standard output.
//
// A worker or conductor that dies is started again on the same port, after 1,
// 2, 4… seconds, at most 5 times in 10 minutes.
// Errors: whatever kept the fleet from starting or going on.
Status RunFleet(const FleetConfig& config);

}  // namespace tidepool::cli
