// The shell around ConductorCore: its thread, its clock and its streams.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/conductor/backend.h"
#include "dataplane/conductor/conductor_core.h"
#include "dataplane/conductor/worker_stream.h"

namespace tidepool::conductor {

struct FleetWorker {
  std::string name;  // for people and labels
  std::string address;
};

// Feeds the core from a bounded inbox on one thread and carries out its
// effects. Submissions beyond the inbox's bound end with kResourceExhausted at
// once, on the caller's thread; messages of workers are bounded by the streams'
// credit (one each), cancellations by the requests they cancel.
class FleetBackend : public Backend {
 public:
  // Starts the thread. `placement`, `dialer` and `clock` outlive the backend.
  // Errors: those of ConductorCore::AddWorker.
  static StatusOr<std::unique_ptr<FleetBackend>> Start(
      const ConductorCoreConfig& config,
      const scheduling::PlacementPolicy& placement, WorkerDialer& dialer,
      const Clock& clock, const std::vector<FleetWorker>& workers);

  // Ends every request with kShutdown, closes the streams, joins the thread.
  ~FleetBackend() override;

  void Submit(ClientRequest request,
              std::shared_ptr<GenerationListener> listener) override;
  void Cancel(std::string request_id, std::string reason) override;
  std::shared_ptr<const FleetSnapshot> Snapshot() const override;

  // What the name numbered `source` stands for now, "host:port" each: workers
  // come and go by it (see Membership), besides those given at the start.
  void OnDiscovered(size_t source, std::vector<std::string> addresses);

 private:
  class Impl;
  explicit FleetBackend(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::conductor
