// absl's mutex under our namespace; guarded members carry
// ABSL_GUARDED_BY and are checked by the `tidy` preset.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tidepool {

using absl::Mutex;
using absl::MutexLock;

}  // namespace tidepool
