// What the gateway asks of the fleet, so that it can be tested without one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/conductor/conductor_core.h"

namespace tidepool::conductor {

// Told how one request goes. Called on the backend's thread, in order, and must
// not block.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;

  // New tokens. `attempt` is where they were made: set with the first output
  // of each attempt, valid during the call.
  virtual void OnOutput(wire::RequestOutput output,
                        const AttemptRecord* attempt) = 0;
  // Last, once for every request submitted. `status` is OK if the last output
  // carried a finish reason, kCancelled after Cancel, else what StatusOf or
  // ConductorCore::Submit say.
  virtual void OnEnd(Status status, RequestRecord record) = 0;
};

// What the end of a request is to its client: OK, kCancelled, or an error whose
// code and API details make the HTTP response.
Status StatusOf(EndReason reason, std::string_view message);

// "prefill", "decode", "unknown" before the worker has greeted.
std::string_view RoleName(const WorkerStatus& worker);

// What the gateway knows of the fleet at some moment.
struct FleetSnapshot {
  bool ready = false;  // some decode worker is ready
  std::vector<WorkerStatus> workers;
  ConductorStats stats;
};

// Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  // `listener` is held until its OnEnd.
  virtual void Submit(ClientRequest request,
                      std::shared_ptr<GenerationListener> listener) = 0;
  // Ends the request with kCancelled unless it has ended.
  virtual void Cancel(std::string request_id, std::string reason) = 0;

  // At most a fraction of a second old.
  virtual std::shared_ptr<const FleetSnapshot> Snapshot() const = 0;
};

}  // namespace tidepool::conductor
