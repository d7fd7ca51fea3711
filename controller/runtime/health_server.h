// /healthz, /readyz and /metrics of a controller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dataplane/base/status.h"

namespace tidepool::runtime {

struct HealthServerOptions {
  std::string host;   // an address; "": all of this machine, IPv6 and IPv4
  uint16_t port = 0;  // 0: any free one
  // An error makes the answer 503 with its message. Called on the server's
  // thread; must not block.
  std::function<Status()> healthy;       // null: always
  std::function<Status()> ready;         // null: always
  std::function<std::string()> metrics;  // text format of Prometheus
};

// One thread; one request per connection. Connections are few and short-lived:
// beyond 32 the oldest is closed, and so is one that takes over 5 seconds.
class HealthServer {
 public:
  // Errors: kInvalidArgument (no address), kUnavailable (port in use).
  static StatusOr<std::unique_ptr<HealthServer>> Start(
      HealthServerOptions options);
  virtual ~HealthServer() = default;

  virtual uint16_t port() const = 0;
};

}  // namespace tidepool::runtime
