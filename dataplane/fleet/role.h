// The planner's roles and the protocol's.
#pragma once

#include <optional>

#include "dataplane/scheduling/placement.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::fleet {

inline worker::v1::Role ToWire(scheduling::WorkerRole role) {
  return role == scheduling::WorkerRole::kPrefill ? worker::v1::ROLE_PREFILL
                                                  : worker::v1::ROLE_DECODE;
}

// nullopt: none that this release knows.
inline std::optional<scheduling::WorkerRole> FromWire(worker::v1::Role role) {
  switch (role) {
    case worker::v1::ROLE_PREFILL:
      return scheduling::WorkerRole::kPrefill;
    case worker::v1::ROLE_DECODE:
      return scheduling::WorkerRole::kDecode;
    default:
      return std::nullopt;
  }
}

}  // namespace tidepool::fleet
