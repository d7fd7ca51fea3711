// Looks names up again and again, without ever being blocked by a resolver.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"

namespace tidepool::conductor {

struct DnsName {
  std::string host;  // a name (of which search domains are tried) or an address
  uint16_t port = 0;
};

struct DnsWatcherOptions {
  Duration interval = std::chrono::seconds(2);  // between two rounds
  Duration timeout = std::chrono::seconds(2);   // of one try at one server
  int tries = 2;
  // "address:port,…" to be asked; "" asks those of the system.
  std::string servers;
};

// Asks for A and AAAA records of all names at the start and every interval, on
// a thread of its own. A name whose last lookup is still under way is not asked
// again. Thread-safe.
class DnsWatcher {
 public:
  // All addresses of names[name], as "host:port", in no order; empty if the
  // name exists without any. Told on the watcher's thread, of successful
  // lookups only: the others are logged when they begin and when they end.
  using OnAnswer =
      std::function<void(size_t name, std::vector<std::string> addresses)>;

  // Errors: kUnavailable (no resolver can be set up).
  static StatusOr<std::unique_ptr<DnsWatcher>> Start(
      std::vector<DnsName> names, const DnsWatcherOptions& options,
      OnAnswer on_answer);
  // Gives up what is under way and joins the thread.
  virtual ~DnsWatcher() = default;

  // Lookups that brought no answer, since the start.
  virtual uint64_t failures_total() const = 0;
};

}  // namespace tidepool::conductor
