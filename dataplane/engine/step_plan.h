// One iteration of the continuous batch: what to run, and what came of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/engine/kv_layout.h"
#include "dataplane/engine/sampling_params.h"

namespace tidepool::engine {

// Names a request inside one engine; never reused while the engine lives.
using SequenceId = uint64_t;

// The part of one sequence that an iteration computes. Spans are owned by the
// planner and stay valid and unchanged until the step is completed.
struct SequenceStep {
  SequenceId sequence = 0;
  // All tokens known so far: prompt, then output.
  std::span<const int32_t> context;
  int32_t prompt_tokens = 0;
  // Computes positions [begin, end); KV of [0, begin) is in the pages. Decode
  // is end - begin == 1.
  int32_t begin = 0;
  int32_t end = 0;
  // Page of positions [i * page_tokens, (i + 1) * page_tokens) at index i;
  // covers [0, end).
  std::span<const PageId> pages;
  // Draw the token at position `end` (== context.size()) from the logits of
  // position end - 1.
  bool sample = false;
  const SamplingParams* sampling = nullptr;  // never null
  // One bit per token id, set if it may be drawn; empty allows all. (Structured
  // output will fill it.)
  std::span<const uint64_t> token_mask;
};

// Immutable while it runs.
struct StepPlan {
  uint64_t number = 0;
  std::vector<SequenceStep> sequences;

  int64_t num_tokens() const {
    int64_t tokens = 0;
    for (const SequenceStep& step : sequences) tokens += step.end - step.begin;
    return tokens;
  }
};

struct SequenceResult {
  SequenceId sequence = 0;
  bool sampled = false;
  int32_t token = 0;
  PositionLogprobs logprobs;  // filled if asked for and sampled
  // Of positions (begin, end], those that are prompt tokens, if asked for.
  std::vector<PositionLogprobs> prompt_logprobs;
};

// `sequences[i]` belongs to `plan.sequences[i]`.
struct StepResult {
  uint64_t number = 0;
  std::vector<SequenceResult> sequences;
};

// Told as KV becomes final, so that it can be streamed while later layers
// compute.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  // KV of `layer` of all positions of `plan` is written. Called in order of
  // layers on the executing thread, which it must not block.
  virtual void OnLayer(const StepPlan& plan, int32_t layer) = 0;
};

// Executes step plans against one KV pool. Confined to one thread.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  // `result` is overwritten, its memory reused. `observer` may be null.
  // Errors: kInternal only (a device failure); plans are valid by construction.
  virtual Status Execute(const StepPlan& plan, LayerObserver* observer,
                         StepResult& result) = 0;
};

}  // namespace tidepool::engine
