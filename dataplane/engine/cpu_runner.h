// The engine's compute half on CPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/engine/kv_layout.h"
#include "dataplane/engine/numerics.h"
#include "dataplane/engine/step_plan.h"
#include "dataplane/model/config.h"
#include "dataplane/model/weights.h"

namespace tidepool::engine {

// Sees every row of logits before it is sampled (for tests).
class LogitsObserver {
 public:
  virtual ~LogitsObserver() = default;
  // Of the token at `position`, [vocab_size]; on the executing thread.
  virtual void OnLogits(const SequenceStep& step, int32_t position,
                        std::span<const float> logits) = 0;
};

struct CpuRunnerOptions {
  ComputeMode mode = ComputeMode::kBFloat16;
  int32_t threads = 1;     // [1, 1024], the caller's included
  std::optional<Isa> isa;  // the fastest that the processor has

  // The KV pool, owned by the caller and possibly shared between processes:
  // num_pages × KvLayoutFor(…).page_bytes(), 64-byte aligned. What lies in
  // rows that no step has written never influences a result.
  std::span<std::byte> kv_pool;
  int32_t num_pages = 0;
  int32_t page_tokens = 64;  // 16, 32 or 64

  // Bounds of every plan.
  int32_t max_step_tokens = 2048;
  int32_t max_step_sequences = 256;
  int32_t max_model_len = 0;  // positions of a sequence

  // Told after each tensor is packed: bytes done, bytes in all.
  std::function<void(int64_t done, int64_t total)> load_progress;
  LogitsObserver* logits_observer = nullptr;
  // For tests: the angle by which a position turns each pair of dimensions,
  // [head_dim / 2], instead of the configuration's.
  std::vector<float> rope_frequencies;
};

// Loads and packs the weights; `source` is not needed afterwards. The runner
// is batch-invariant: logits, tokens and KV bytes of a sequence are bitwise
// the same whatever else a plan holds, however it is cut into chunks, wherever
// its pages lie, and for every page size and number of threads. Execute does
// not allocate once it has seen plans of a size, but for log probabilities of
// prompts.
// Errors: kInvalidArgument naming the option; kFailedPrecondition if the
// processor lacks `isa`; kResourceExhausted; those of WeightSource::Get.
StatusOr<std::unique_ptr<ModelRunner>> CreateCpuRunner(
    const model::ModelConfig& config, model::WeightSource& source,
    const CpuRunnerOptions& options);

}  // namespace tidepool::engine
