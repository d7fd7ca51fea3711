#pragma once

#include <string_view>

#include "controller/reconcilers/pod_template.h"

namespace tidepool::reconcilers {

// The certificate of `component` of the KVCachePool `pool`, and the flags that
// say where it is.
void AddTls(std::string_view pool, std::string_view component, PodParts& parts);

}  // namespace tidepool::reconcilers
