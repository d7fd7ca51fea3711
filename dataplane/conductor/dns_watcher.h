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
  // A name, or an address. The name is looked for in the search domains until
  // it is found, and from then on where it was found.
  std::string host;
  uint16_t port = 0;
};

struct DnsWatcherOptions {
  Duration interval = std::chrono::seconds(2);  // between two rounds
  Duration timeout = std::chrono::seconds(2);   // of one try at one server
  int tries = 2;
  // A name that does not exist, or has no address, is told to have none when
  // each lookup has said so for this long: a name server that starts may know
  // less than it will.
  Duration absence_min = std::chrono::seconds(30);
  // "address:port,…" to be asked; "" asks those of the system.
  std::string servers;
  std::vector<std::string> search_domains;  // none: those of the system
};

// Asks for A and AAAA records of all names at the start and every interval, on
// a thread of its own. A name whose last lookup is still under way is not asked
// again. Thread-safe.
class DnsWatcher {
 public:
  // All addresses of names[name], as "host:port", in no order; empty after
  // `absence_min` without any. Told on the watcher's thread. Failures (of
  // servers, or to reach one) tell nothing; they are logged when they begin and
  // when they end.
  using OnAnswer =
      std::function<void(size_t name, std::vector<std::string> addresses)>;

  // Errors: kUnavailable (no resolver can be set up).
  static StatusOr<std::unique_ptr<DnsWatcher>> Start(
      std::vector<DnsName> names, const DnsWatcherOptions& options,
      OnAnswer on_answer);
  // Gives up what is under way and joins the thread.
  virtual ~DnsWatcher() = default;

  // Lookups that failed, since the start.
  virtual uint64_t failures_total() const = 0;
};

}  // namespace tidepool::conductor
