// What `helm test` asks: whether the controller is there and at work.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "controller/kube/client.h"
#include "dataplane/base/status.h"

namespace tidepool::controller {

struct CheckInstallOptions {
  std::string space;  // whose fleets are told of; "": all namespaces
  kube::ObjectKey lease;
  // Called between two looks at the Lease, until it was seen renewed.
  std::function<void()> pause;
  int looks_max = 20;
};

// Lines for a reader: the leader, and how each fleet is. A fleet that is not
// Ready is told of, but no error.
// Errors: kFailedPrecondition (a kind is not installed, or nobody renews the
// Lease), those of the client.
StatusOr<std::vector<std::string>> CheckInstall(
    kube::Client& client, const CheckInstallOptions& options);

}  // namespace tidepool::controller
