// Errors of the API server as Status.
#pragma once

#include <string_view>

#include "controller/kube/client.h"
#include "dataplane/base/status.h"

namespace tidepool::kube::internal {

// `attempt` names what was tried on which object; `body` is a `Status` object
// if the server is one of Kubernetes.
Status ApiError(long http_code, std::string_view body,
                std::string_view attempt);

// The same for a `Status` object that came in a watch.
Status ApiError(const Json& status, std::string_view attempt);

}  // namespace tidepool::kube::internal
