// Which pods of a pool to replace next. StatefulSets are left to OnDelete,
// since Kubernetes' own rolling update would wait for one pod that never gets
// ready, knows no surge, and cannot be stopped half-way.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "controller/reconcilers/observed.h"
#include "controller/reconcilers/worker_pool/spec.h"

namespace tidepool::reconcilers {

// The pods of one pool, counted.
struct PodCounts {
  int32_t total = 0;    // that exist, terminating ones included
  int32_t running = 0;  // not terminating
  int32_t ready = 0;    // of those
  int32_t updated = 0;  // of the revision that is to be
  int32_t updated_ready = 0;
  int32_t outdated = 0;
};
PodCounts CountPods(std::span<const std::shared_ptr<const PodView>> pods,
                    const std::string& update_revision);

// How many more pods than `target` there may be while some are outdated.
int32_t Surge(const RolloutSpec& rollout, const PodCounts& counts);

struct RolloutInputs {
  RolloutSpec rollout;
  int32_t target = 0;  // without surge
  // Of the StatefulSet: pods beyond are about to go anyway.
  int32_t replicas = 0;
  // The revision that pods are to have; "" while the StatefulSet has not said
  // yet which one that is: nothing is replaced then.
  std::string update_revision;
  std::span<const std::shared_ptr<const PodView>> pods;
};

// Pods to delete now, each of which drains first. Outdated pods that are not
// ready go at once, since nobody loses by it; ready ones while at least
// target - max_unavailable others stay ready, whatever the reason why some are
// not. Highest ordinals first.
std::vector<std::shared_ptr<const PodView>> PodsToReplace(
    const RolloutInputs& inputs);

}  // namespace tidepool::reconcilers
