// What a controller process is made of, started and stopped in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/kube/client.h"
#include "controller/runtime/controller_loop.h"
#include "controller/runtime/informer.h"
#include "controller/runtime/leader_elector.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"

namespace tidepool::runtime {

struct ManagerOptions {
  LeaderElectorOptions election;
  bool elect = true;        // false: leads from the start (one replica, tests)
  std::string health_host;  // "": all addresses
  uint16_t health_port = 8081;  // 0: any free one
  // /healthz fails when a call of a reconciler has run for this long: nothing
  // it waits for takes that long, so it hangs.
  Duration reconcile_max = std::chrono::minutes(5);
  // All keys are reconciled this often even if nothing happened to them.
  Duration resync_interval = std::chrono::minutes(10);
};

// Informers run from the start, on every replica; loops begin once all
// informers have synced and the Lease is held, with every key their `keys`
// lists. Losing the Lease pauses the loops; the process goes on.
//
// /readyz is OK once the informers have synced, leading or not. /healthz does
// not depend on the API server.
class Manager {
 public:
  // Clients and clock must outlive it. `election_client` must give up calls
  // within the election's renew_interval.
  Manager(ManagerOptions options, kube::Client& client,
          kube::Client& election_client,
          const Clock& clock = Clock::Monotonic());
  ~Manager();  // stops

  // Before Start. What is added must outlive the manager.
  void Add(InformerBase& informer);
  // `keys`: every object of the loop's kind that is known, in the order in
  // which a new leader is to take them up. What changes meanwhile comes before
  // them.
  void Add(ControllerLoop& loop,
           std::function<std::vector<kube::ObjectKey>()> keys);
  // Called on gaining and losing the Lease, on the election's thread; must not
  // block. `started` comes before the first key of the term.
  void OnLeading(std::function<void(uint64_t term)> started,
                 std::function<void()> stopped);
  // Shown on /metrics while leading, unless `level` gives nullopt; called on
  // the health server's thread.
  void AddGauge(std::string name, std::string help,
                std::function<std::optional<double>()> level);
  // Counts a call of the API client, for /metrics. Thread-safe.
  void CountCall(const kube::CallRecord& call);

  // Errors: those of ListenTcp for the health port.
  Status Start();
  // Loops first (what runs ends), then the Lease is released, then informers
  // and health. Idempotent.
  void Stop();

  bool IsLeading() const;
  // The epoch of role changes; nullopt when not leading.
  std::optional<uint64_t> Term() const;
  uint16_t health_port() const;
  std::string Metrics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::runtime
