#include "controller/reconcilers/worker_pool/spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace tidepool::reconcilers {
namespace {

// "NAME-" and the hash of a revision make a label's value.
constexpr size_t kNameBytesMax = 50;

void ReadReplicas(const SpecReader& reader, WorkerPoolSpec& pool) {
  const auto read = [&](const char* name) {
    return reader.OptionalInteger(name, 0, kReplicasMax);
  };
  pool.replicas = static_cast<int32_t>(read("replicas").value_or(1));
  pool.min_replicas = static_cast<int32_t>(
      read("minReplicas").value_or(std::min(pool.replicas, 1)));
  pool.max_replicas =
      static_cast<int32_t>(read("maxReplicas").value_or(kReplicasMax));
  if (pool.min_replicas > pool.max_replicas)
    reader.Complain("minReplicas",
                    fmt::format("{} is above maxReplicas {}", pool.min_replicas,
                                pool.max_replicas));
  else if (pool.replicas < pool.min_replicas ||
           pool.replicas > pool.max_replicas)
    reader.Complain("replicas",
                    fmt::format("{} is not within {}..{}", pool.replicas,
                                pool.min_replicas, pool.max_replicas));
}

RolloutSpec ReadRollout(const SpecReader& reader) {
  RolloutSpec rollout;
  rollout.is_paused = reader.Choice("policy", {"Progress", "Paused"}, 0) == 1;
  rollout.max_unavailable = static_cast<int32_t>(
      reader.Integer("maxUnavailable", 1, 0, kReplicasMax));
  rollout.max_surge =
      static_cast<int32_t>(reader.Integer("maxSurge", 0, 0, kReplicasMax));
  if (rollout.max_unavailable == 0 && rollout.max_surge == 0) {
    reader.Complain("maxUnavailable", "and maxSurge must not both be 0");
    rollout.max_unavailable = 1;
  }
  return rollout;
}

}  // namespace

WorkerPoolSpec ReadWorkerPool(bool is_prefill, const std::string& name,
                              const Json& spec, Problems& problems) {
  const SpecReader reader(spec, "spec", problems);
  if (!IsDnsLabel(name) || name.size() > kNameBytesMax)
    problems.push_back(
        fmt::format("metadata.name: `{}` is not a DNS label of at most {} "
                    "characters",
                    name, kNameBytesMax));
  WorkerPoolSpec pool;
  pool.is_prefill = is_prefill;
  pool.kv_cache_pool = reader.Object("kvCachePoolRef").RequiredText("name");
  ReadReplicas(reader, pool);
  pool.is_lendable = reader.Choice("lending", {"Allowed", "Forbidden"}, 0) == 0;
  pool.resources = ReadResources(reader.Object("resources"));
  pool.kv_cache_bytes = reader.Quantity("kvCacheMemory");
  if (is_prefill) {
    pool.chunk_tokens = reader.Integer("chunkTokens", 2048, 256, 1 << 20);
  } else {
    pool.max_num_seqs = reader.Integer("maxNumSeqs", 256, 1, 4096);
    pool.max_model_len = reader.OptionalInteger("maxModelLen", 1, 1 << 24);
  }
  pool.drain_seconds = reader.Integer("drainSeconds", 120, 0, 3600);
  pool.rollout = ReadRollout(reader.Object("rollout"));
  pool.overrides = ReadOverrides(reader.Object("template"));
  return pool;
}

}  // namespace tidepool::reconcilers
