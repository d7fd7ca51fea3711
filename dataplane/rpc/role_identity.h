// Who a process of a fleet is, as its certificate says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dataplane/base/status.h"

namespace tidepool::rpc {

enum class Component : uint8_t { kConductor, kWorker, kController };
std::string_view NameOf(Component component);  // "conductor"

// A member of one fleet: the KVCachePool `pool` of namespace `space`. Names
// are Kubernetes': lower-case letters, digits, dots and dashes.
struct RoleIdentity {
  std::string space, pool;
  Component component = Component::kWorker;

  // "spiffe://tidepool/SPACE/POOL/COMPONENT": the one URI among the subject's
  // alternative names.
  std::string ToUri() const;
  // Errors: kInvalidArgument naming the URI.
  static StatusOr<RoleIdentity> Parse(std::string_view uri);

  // Whether both are of the same fleet.
  bool IsFleetmateOf(const RoleIdentity& other) const {
    return space == other.space && pool == other.pool;
  }
  bool operator==(const RoleIdentity&) const = default;
};

// Errors: kInvalidArgument naming the field.
Status Validate(const RoleIdentity& identity);

}  // namespace tidepool::rpc
