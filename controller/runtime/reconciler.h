// What a controller for one kind of object is.
#pragma once

#include <optional>

#include "controller/kube/client.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"

namespace tidepool::runtime {

struct Result {
  // When to look again without being told to.
  std::optional<Duration> requeue_after;

  static Result Done() { return {}; }
};

// Brings the world in line with one object. Level-based: told which object,
// never what happened to it. Called by several threads at once, but by one at a
// time for the same key.
class Reconciler {
 public:
  virtual ~Reconciler() = default;

  // An error is logged, counted, and the key comes again after its backoff
  // (kAborted, a conflict, and kCancelled are no news and only counted).
  virtual StatusOr<Result> Reconcile(const kube::ObjectKey& key) = 0;
};

}  // namespace tidepool::runtime
