#include "controller/reconcilers/worker_pool/rollout.h"

#include <algorithm>

namespace tidepool::reconcilers {

PodCounts CountPods(std::span<const std::shared_ptr<const PodView>> pods,
                    const std::string& update_revision) {
  PodCounts counts;
  for (const auto& pod : pods) {
    if (pod->finished) continue;
    ++counts.total;
    if (pod->terminating) continue;
    ++counts.running;
    if (pod->ready) ++counts.ready;
    if (update_revision.empty()) continue;
    if (pod->revision != update_revision) {
      ++counts.outdated;
    } else {
      ++counts.updated;
      if (pod->ready) ++counts.updated_ready;
    }
  }
  return counts;
}

int32_t Surge(const RolloutSpec& rollout, const PodCounts& counts) {
  return rollout.is_paused ? 0 : std::min(rollout.max_surge, counts.outdated);
}

std::vector<std::shared_ptr<const PodView>> PodsToReplace(
    const RolloutInputs& inputs) {
  std::vector<std::shared_ptr<const PodView>> chosen, ready;
  if (inputs.update_revision.empty() || inputs.rollout.is_paused) return chosen;
  int32_t ready_count = 0;
  for (const auto& pod : inputs.pods) {
    if (pod->terminating || pod->finished ||
        OrdinalOf(pod->key.name) >= inputs.replicas)
      continue;
    if (pod->ready) ++ready_count;
    if (pod->revision != inputs.update_revision)
      (pod->ready ? ready : chosen).push_back(pod);
  }
  std::ranges::sort(ready, std::ranges::greater(),
                    [](const auto& pod) { return OrdinalOf(pod->key.name); });
  const int32_t spare =
      ready_count - (inputs.target - inputs.rollout.max_unavailable);
  ready.resize(std::min<size_t>(std::max(spare, 0), ready.size()));
  chosen.insert(chosen.end(), ready.begin(), ready.end());
  return chosen;
}

}  // namespace tidepool::reconcilers
