// One process of tidepool-controller: informers, election, work queue and
// reconciler as in production, without their threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "controller/reconcilers/rebalancing/fleet.h"
#include "controller/runtime/leader_elector.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/random.h"
#include "tests/fakes/faulty_client.h"
#include "tests/sim/controller_audit.h"
#include "tests/sim/controller_cluster.h"
#include "tests/sim/event_queue.h"

namespace tidepool::sim {

class QueueClock final : public Clock {
 public:
  explicit QueueClock(const EventQueue& queue) : queue_(queue) {}
  TimePoint Now() const override { return queue_.now(); }

 private:
  const EventQueue& queue_;
};

// The fleet as one controller knows it. Externally synchronized.
class FleetPort final : public reconcilers::FleetSource,
                        public reconcilers::RoleSetter {
 public:
  FleetPort(ControllerCluster& cluster, EventQueue& queue, uint64_t seed)
      : cluster_(cluster), queue_(queue), random_(seed) {}

  void Follow(const kube::ObjectKey& family,
              const std::vector<reconcilers::ConductorAddress>& conductors,
              bool closely) override;
  reconcilers::FleetSnapshot Snapshot(
      const kube::ObjectKey& family) const override;
  void SetRole(const reconcilers::RoleRequest& request) override;

  // What conductors say now, as it arrives here. True if any said its first
  // word.
  bool Listen();
  void set_deaf_until(TimePoint until) { deaf_until_ = until; }
  // Requests of role changes take this long, and some are lost.
  void set_network(Duration delay_max, double loss) {
    delay_max_ = delay_max;
    loss_ = loss;
  }

 private:
  ControllerCluster& cluster_;
  EventQueue& queue_;
  Random random_;
  bool closely_ = false;
  TimePoint listened_at_, deaf_until_;
  Duration delay_max_ = std::chrono::milliseconds(50);
  double loss_ = 0;
  struct Heard {
    std::optional<reconcilers::ConductorSeen> under_way, last;
  };
  std::map<std::string, Heard> conductors_;  // that are followed, by uid
};

struct ControllerProcessOptions {
  std::string identity;
  uint64_t seed = 0;
  // Before each write, after it was found that the process leads.
  std::function<void()> before_write;
};

// Externally synchronized.
class ControllerProcess {
 public:
  ControllerProcess(fakes::ApiServer& server, EventQueue& queue,
                    ControllerCluster& cluster, ControllerAudit& audit,
                    ControllerProcessOptions options);
  ~ControllerProcess();

  // Whatever is due now.
  void Step();

  bool IsLeading() const;
  uint64_t term() const;
  // True while Step runs: it must not be destroyed or stepped meanwhile.
  bool is_busy() const { return is_busy_; }
  // Told nothing and does nothing until then.
  void FreezeUntil(TimePoint until) { frozen_until_ = until; }
  void HoldInformersUntil(TimePoint until) { informers_from_ = until; }
  void DropWatches();

  fakes::FaultyClient& client();
  fakes::FaultyClient& election_client();
  FleetPort& fleet();
  // Writes but those to the Lease.
  uint64_t writes() const;

 private:
  struct Parts;
  void Elect();
  void Lead();

  EventQueue& queue_;
  const std::unique_ptr<Parts> parts_;
  bool is_busy_ = false;
  TimePoint frozen_until_, informers_from_;
};

}  // namespace tidepool::sim
