// PrefillPool.spec and DecodePool.spec, typed: they differ in two fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "controller/reconcilers/pod_template.h"
#include "controller/reconcilers/spec_reader.h"

namespace tidepool::reconcilers {

struct RolloutSpec {
  bool is_paused = false;
  int32_t max_unavailable = 1, max_surge = 0;
};

struct WorkerPoolSpec {
  bool is_prefill = false;
  std::string kv_cache_pool;
  int32_t replicas = 1;
  int32_t min_replicas = 0, max_replicas = 0;  // what the planner may choose
  bool is_lendable = true;
  ResourcesSpec resources;
  std::optional<uint64_t> kv_cache_bytes;
  int64_t chunk_tokens = 2048;           // prefill
  int64_t max_num_seqs = 256;            // decode
  std::optional<int64_t> max_model_len;  // decode
  int64_t drain_seconds = 120;
  RolloutSpec rollout;
  PodOverrides overrides;
};

inline constexpr int32_t kReplicasMax = 10'000;

// Never fails: see ReadKVCachePool. Without bounds of its own a pool may be
// planned from one replica (none, if none is wished) up to kReplicasMax.
WorkerPoolSpec ReadWorkerPool(bool is_prefill, const std::string& name,
                              const Json& spec, Problems& problems);

}  // namespace tidepool::reconcilers
