// The objects of a PrefillPool or DecodePool.
#pragma once

#include <string>

#include "controller/reconcilers/kv_cache_pool/spec.h"
#include "controller/reconcilers/manifest.h"
#include "controller/reconcilers/model_memory.h"
#include "controller/reconcilers/worker_pool/spec.h"

namespace tidepool::reconcilers {

struct WorkerContext {
  FamilyScope scope;  // owned by the pool, with the version the fleet runs
  std::string pool;   // its name
  std::string model;  // for --model
  ImageSpec image;
  MemoryPlan memory;
  const KVCachePoolSpec* family = nullptr;
};

Json WorkerSelector(const FamilyScope& scope, const std::string& pool);

// Pods come and go in parallel; replaced ones are ours to choose (OnDelete).
// Annotated with a digest of its template.
Manifest WorkerStatefulSet(const WorkerPoolSpec& spec,
                           const WorkerContext& context, int32_t replicas);
// Headless, and says addresses before readiness: conductors judge themselves.
Manifest WorkerService(const WorkerContext& context);

// Of a StatefulSet manifest.
std::string TemplateDigest(const Manifest& stateful_set);

}  // namespace tidepool::reconcilers
