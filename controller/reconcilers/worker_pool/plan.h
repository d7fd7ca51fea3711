// What ought to be for one PrefillPool or DecodePool. Pure.
#pragma once

#include "controller/reconcilers/family.h"
#include "controller/reconcilers/plan.h"

namespace tidepool::reconcilers {

// `pool` is one of `family.pools`.
//
// Nothing of a pool is changed while its spec, its family's or its model
// cannot be read: what runs keeps running.
Plan MakeWorkerPoolPlan(const FamilyState& family, const PoolState& pool);

}  // namespace tidepool::reconcilers
