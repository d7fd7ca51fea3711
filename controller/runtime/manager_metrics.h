// What a manager counts, in the text format of Prometheus.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "controller/kube/client.h"
#include "controller/runtime/informer.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"

namespace tidepool::runtime::internal {

// Levels at the time of a scrape.
struct ManagerLevels {
  struct Loop {
    std::string name;
    size_t waiting = 0, delayed = 0, running = 0;
    uint64_t dropped_total = 0;
  };
  struct Watched {
    std::string kind;
    InformerStats stats;
  };
  struct Gauge {
    std::string name, help;
    double level = 0;
  };
  std::vector<Loop> loops;
  std::vector<Watched> informers;
  std::vector<Gauge> gauges;
  TimePoint now;
  bool leading = false;
  uint64_t terms_total = 0;
};

// Thread-safe.
class ManagerMetrics {
 public:
  ManagerMetrics();
  ~ManagerMetrics();

  void CountReconcile(std::string_view kind, Code code, Duration took);
  void CountCall(const kube::CallRecord& call);
  std::string Text(const ManagerLevels& levels) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::runtime::internal
