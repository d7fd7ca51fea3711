// A fleet's statistics in, role changes out, over gRPC.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/fleet/fleet_view.h"
#include "dataplane/fleet/role_keeper.h"
#include "dataplane/rpc/security.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::fleet {

// Polled: it has no thread of its own, never calls back and never waits, so it
// fits into any loop. Thread-safe.
class FleetClient {
 public:
  struct Options {
    rpc::Security security;  // who the caller is to the fleet
    Duration report_interval = std::chrono::seconds(1);  // 100 ms to 60 s
    // A conductor that says nothing for so long beyond the interval is dialed
    // anew.
    Duration silence_max = std::chrono::seconds(5);
    // Until a watch that ended is opened anew.
    Duration redial_pause = std::chrono::seconds(1);
    Duration call_timeout = std::chrono::seconds(5);
    // More are not watched; further calls are answered kResourceExhausted.
    size_t conductors_max = 64;
    size_t calls_max = 256;
    int message_bytes_max = 16 << 20;
  };

  struct RoleAnswer {
    std::string id;  // of the RoleCall
    StatusOr<worker::v1::RoleState> state;
  };

  // `clock` outlives the client.
  static std::unique_ptr<FleetClient> Create(const Options& options,
                                             const Clock& clock);
  // Ends everything; waits for gRPC to be done with it, 5 s at most.
  virtual ~FleetClient() = default;

  // Watches exactly the conductors whose control ports ("host:port") these are.
  // Opens what is broken anew: to be called regularly, every
  // `report_interval` or so.
  virtual void Watch(std::span<const std::string> addresses) = 0;

  // One for each conductor that is watched, by address.
  virtual std::vector<ConductorReport> Reports() const = 0;

  // Ends with one answer, within `call_timeout`.
  virtual void SetRole(const RoleCall& call) = 0;

  // The answers that came since the last time.
  virtual std::vector<RoleAnswer> TakeAnswers() = 0;
};

}  // namespace tidepool::fleet
