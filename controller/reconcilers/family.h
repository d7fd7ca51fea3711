// A family read and judged as one: specs, versions, targets and grants, which
// the plans of its members start from. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/reconcilers/kv_cache_pool/spec.h"
#include "controller/reconcilers/model_memory.h"
#include "controller/reconcilers/observed.h"
#include "controller/reconcilers/worker_pool/rollout.h"
#include "controller/reconcilers/worker_pool/spec.h"

namespace tidepool::reconcilers {

// What the controller process was told.
struct ControllerSettings {
  std::string version;           // for fleets that are new and name none
  std::string image_repository;  // for fleets that name none
  std::string space;             // where the controller itself runs
};

// What is known of the model, at this moment.
struct ModelState {
  enum class Phase {
    kReady,    // `commit` and `figures` are as good as they get
    kPending,  // the hub was not asked yet or has not answered
    kFailed,   // it cannot be used: `message` says why
  };
  Phase phase = Phase::kReady;
  std::string commit;  // hub models; "" for others
  std::optional<ModelFigures> figures;
  std::string message;
  std::optional<Duration> look_again;  // when asking again may help
};

struct PoolState {
  const WorkerPoolObserved* observed = nullptr;
  WorkerPoolSpec spec;
  Problems problems;
  PodCounts counts;
  int32_t target = 0;   // replicas wished, or planned
  int32_t surge = 0;    // on top, while a rollout goes on
  int32_t granted = 0;  // what the StatefulSet may have now, surge included
  // Its new template takes more devices than there is room for yet.
  bool waits_for_room = false;
  uint32_t borrowed = 0;
};

struct FamilyState {
  const FamilyObserved* observed = nullptr;
  KVCachePoolSpec spec;
  Problems problems;    // of the KVCachePool
  std::string version;  // that the fleet runs
  ImageSpec image;      // repository set
  ModelState model;
  std::vector<PoolState> pools;  // in the order of observed->pools

  bool exists() const { return observed->resource != nullptr; }
  bool is_valid() const { return exists() && problems.empty(); }
};

// `observed` must outlive the result. The model is left pending: whoever looks
// it up sets it.
FamilyState ReadFamily(const FamilyObserved& observed,
                       const ControllerSettings& settings);

// The revision that the pool's pods are to have, once its StatefulSet has said
// so for its newest generation; "" before.
std::string UpdateRevision(const WorkerPoolObserved& pool);

// Pods that the pool's StatefulSet was told to make, and those beyond that are
// not gone yet: what holds devices.
uint32_t ReplicasHeld(const WorkerPoolObserved& pool);

}  // namespace tidepool::reconcilers
