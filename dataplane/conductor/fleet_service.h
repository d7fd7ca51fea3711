// The control port: FleetService over gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/rpc/security.h"
#include "tidepool/conductor/v1/fleet.pb.h"

namespace tidepool::conductor {

// Streams reports to at most `watchers_max` watchers, each at its own interval,
// from one thread. A watcher that has not taken its last report gets none until
// it has: nothing is queued for it. Thread-safe.
class ControlServer {
 public:
  // The state of the fleet now, without a sequence; called on the thread of the
  // server, at most once for all watchers that are due together.
  using Source = std::function<v1::WatchFleetResponse()>;

  struct Options {
    std::string host = "127.0.0.1";
    uint16_t port = 0;  // 0: any free one
    size_t watchers_max = 64;
    rpc::Security security;  // controllers alone may watch
  };

  // `clock` outlives the server. Errors: kAlreadyExists (port in use, or no
  // address of this host).
  static StatusOr<std::unique_ptr<ControlServer>> Start(const Options& options,
                                                        const Clock& clock,
                                                        Source source);
  // Ends the streams with UNAVAILABLE.
  virtual ~ControlServer() = default;

  virtual uint16_t port() const = 0;
};

}  // namespace tidepool::conductor
