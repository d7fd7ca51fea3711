// What `helm uninstall` asks before it takes the controller away.
#pragma once

#include <string>
#include <vector>

#include "controller/kube/client.h"
#include "dataplane/base/status.h"

namespace tidepool::controller {

// "KVCachePool models/demo" for every resource of ours; `space` "": in all
// namespaces. Kinds that are not installed have none.
// Errors: those of the client.
StatusOr<std::vector<std::string>> RemainingResources(kube::Client& client,
                                                      const std::string& space);

// What to tell whoever wanted to uninstall while `remaining` are there.
std::string Refusal(const std::vector<std::string>& remaining);

}  // namespace tidepool::controller
