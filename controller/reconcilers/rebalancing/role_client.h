// RoleSetter over gRPC: a client of the workers' WorkerService.
#pragma once

#include <cstddef>
#include <memory>

#include "controller/reconcilers/rebalancing/fleet.h"
#include "controller/reconcilers/tls/keyring.h"

namespace tidepool::reconcilers {

struct RoleClientOptions {
  // For connection and answer together; the switch itself takes longer.
  Duration deadline = std::chrono::seconds(3);
  // Beyond, requests are dropped: who wants them asks again.
  size_t calls_max = 256;
};

// Calls run on gRPC's threads: a worker that cannot be reached keeps nobody.
class RoleClient final : public RoleSetter {
 public:
  // `keyring`, which says who to be for whom, must outlive it.
  explicit RoleClient(const Keyring& keyring, RoleClientOptions options = {});
  // Cancels what runs, and waits for it.
  ~RoleClient() override;

  void SetRole(const RoleRequest& request) override;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::reconcilers
