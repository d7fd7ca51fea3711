// What pools hold devices for, and what they may be told to hold.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "controller/reconcilers/family.h"

namespace tidepool::reconcilers {

// A StatefulSet makes every pod it was told to, whichever of them are there
// now; those beyond are leaving, which may take long. The sum is what there may
// be at once.
struct Holding {
  uint32_t told = 0, leaving = 0;
  // That they may take: old pods and new ones may differ.
  uint64_t devices = 0;
  uint32_t each = 0;  // of the template
};
// `set` may be null.
Holding HoldingOf(const Child* set,
                  std::span<const std::shared_ptr<const PodView>> pods);

// Whether the pool's next template takes more devices than that of its
// StatefulSet, of which `each` pod takes so many (0: there is none).
bool WantsLargerPods(const PoolState& pool, uint32_t each);

// Sets what each pool's StatefulSet may be told now, and whether its template
// has to wait; `holdings` are in the order of `pools`. Pods that leave count
// until they are gone, also against their own pool.
void GrantWithin(const std::optional<uint32_t>& budget,
                 std::span<const Holding> holdings,
                 std::vector<PoolState>& pools);

}  // namespace tidepool::reconcilers
