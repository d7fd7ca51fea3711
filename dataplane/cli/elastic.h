// `tidepool serve --elastic`: roles follow the load, without reloading weights.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/scheduling/placement.h"

namespace tidepool::cli {

struct ElasticConfig {
  Duration ttft_slo{}, tbt_slo{};  // 0: not stated
  Duration stabilization = std::chrono::seconds(60);
  // What a worker that changes its role has by then is finished by others.
  Duration drain_timeout = std::chrono::seconds(30);
};

struct ElasticWorker {
  std::string name;
  std::string address;  // of its control service, host:port
  scheduling::WorkerRole role = scheduling::WorkerRole::kDecode;  // its flag's
};

// Watches the conductor's statistics, decides (ElasticCore) and asks workers to
// change their roles. Never waits, but for gRPC at its end; confined to one
// thread.
class Elastic {
 public:
  Elastic(const ElasticConfig& config, std::vector<ElasticWorker> workers);
  ~Elastic();

  // To be called often. `control_address` is the conductor's, "" while it has
  // none. Gives lines for people.
  std::vector<std::string> Tend(const std::string& control_address);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::cli
