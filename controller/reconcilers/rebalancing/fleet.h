// What conductors tell of their fleets, and what workers can be asked: the
// world of the planner, without wires.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controller/kube/client.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/scheduling/planner.h"

namespace tidepool::reconcilers {

using scheduling::WorkerRole;

// One worker, as a conductor knows it.
struct WorkerSeen {
  std::string name;  // the pod's
  std::string host;  // of its address
  bool connected = false;
  bool ready = false;
  bool draining = false;
  uint64_t incarnation = 0;
  // Absent before its first answer; `target` only while it switches.
  std::optional<WorkerRole> role, target;

  uint32_t waiting_requests = 0, running_requests = 0, max_requests = 0;
  uint64_t queued_prefill_tokens = 0;
  double prefill_tokens_per_second = 0;
  uint32_t pages_total = 0, pages_free = 0;
};

// Of the last minute; count 0: nothing was measured.
struct LatencySeen {
  uint64_t count = 0;
  double p50_ms = 0, p90_ms = 0, p95_ms = 0, p99_ms = 0;

  // The nearest that was measured, not below `percent`.
  double At(int percent) const;
};

struct ConductorSeen {
  TimePoint at;  // when it said so
  // As in the planner's FleetView.
  uint32_t waiting_requests = 0, waiting_for_decode = 0;
  uint64_t waiting_prompt_tokens = 0;
  uint64_t prompt_tokens_total = 0, cached_prompt_tokens_total = 0;
  LatencySeen ttft, tbt;
  std::vector<WorkerSeen> workers;
};

using FleetSnapshot = std::vector<ConductorSeen>;

// Where a conductor's FleetService is.
struct ConductorAddress {
  std::string uid;   // the pod's
  std::string host;  // its address

  friend bool operator==(const ConductorAddress&,
                         const ConductorAddress&) = default;
};

// Thread-safe; no call waits for the network.
class FleetSource {
 public:
  virtual ~FleetSource() = default;

  // The conductors of a family from now on. `closely`: each report counts;
  // otherwise one every half minute does. An empty list forgets the family.
  virtual void Follow(const kube::ObjectKey& family,
                      const std::vector<ConductorAddress>& conductors,
                      bool closely) = 0;
  // The last that each of them said.
  virtual FleetSnapshot Snapshot(const kube::ObjectKey& family) const = 0;
};

struct RoleRequest {
  kube::ObjectKey family;
  std::string worker;   // the pod's name, for messages
  std::string address;  // host:port of its control service
  uint64_t incarnation = 0;
  WorkerRole role = WorkerRole::kDecode;
  uint64_t term = 0, sequence = 0;  // the epoch
  Duration drain_timeout{};
};

// Thread-safe; no call waits for the network.
class RoleSetter {
 public:
  virtual ~RoleSetter() = default;
  // Asks once. What came of it is in the fleet's statistics; a request that
  // failed is logged, and made again by whoever still wants it.
  virtual void SetRole(const RoleRequest& request) = 0;
};

}  // namespace tidepool::reconcilers
