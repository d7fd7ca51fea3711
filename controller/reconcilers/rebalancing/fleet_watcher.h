// FleetSource over gRPC: a client of the conductors' FleetService.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "controller/reconcilers/rebalancing/fleet.h"
#include "controller/reconcilers/tls/keyring.h"
#include "dataplane/base/clock.h"

namespace tidepool::conductor::v1 {
class WatchFleetResponse;
}  // namespace tidepool::conductor::v1

namespace tidepool::reconcilers {

// What a report says; `at` is the time it came.
ConductorSeen FromReport(const conductor::v1::WatchFleetResponse& report,
                         TimePoint at);

struct FleetWatcherOptions {
  uint16_t port = 8002;  // of the FleetService
  // Followed closely: a stream with a report in each interval.
  Duration report_interval = std::chrono::seconds(1);
  // Otherwise one report in each of these, over a connection of its own, so
  // that a thousand fleets hold no thousand connections.
  Duration sample_interval = std::chrono::seconds(30);
  size_t samples_at_once = 16;
  size_t streams_max = 1024;  // beyond, closely is as otherwise
  // Without a word for this long a call is ended.
  Duration silence_max = std::chrono::seconds(5);
  Duration retry_min = std::chrono::seconds(1);
  Duration retry_max = std::chrono::seconds(60);
};

// Owns one thread, which begins and ends calls; reports come on gRPC's.
class FleetWatcher final : public FleetSource {
 public:
  // `heard`: the first word of a conductor, and each sample; must not block.
  // `keyring` says who to be for whom; it and `clock` must outlive the watcher.
  FleetWatcher(FleetWatcherOptions options, const Keyring& keyring,
               const Clock& clock,
               std::function<void(const kube::ObjectKey& family)> heard);
  // Ends all calls, and waits for it.
  ~FleetWatcher() override;

  void Follow(const kube::ObjectKey& family,
              const std::vector<ConductorAddress>& conductors,
              bool closely) override;
  FleetSnapshot Snapshot(const kube::ObjectKey& family) const override;
  // Forgets all families: somebody else leads.
  void FollowNobody();

 private:
  class Impl;
  class Call;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace tidepool::reconcilers
