// A model runner that takes the time of a stated engine and computes almost
// nothing: fleets of dozens of workers run on two cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/engine/kv_layout.h"
#include "dataplane/engine/perf_model.h"
#include "dataplane/engine/step_plan.h"

namespace tidepool::engine {

// Names the emulated arithmetic: tokens depend on the request alone, not on
// the performance, so differently fast workers may be paired.
inline constexpr char kEmulatedNumericsId[] = "emulated-1";

// One 8-byte cell per layer and position, so that hand-overs, prefix hits and
// migrations are as real as with an engine that computes.
KvLayout EmulatedKvLayout(int32_t page_tokens);

struct EmulatedRunnerOptions {
  PerfModel perf;
  int64_t vocab_size = 0;
  std::vector<int32_t> eos_ids;  // never drawn: requests end by max_tokens

  // num_pages × EmulatedKvLayout(…).page_bytes(), 8-byte aligned.
  std::span<std::byte> kv_pool;
  int32_t num_pages = 0;
  int32_t page_tokens = 64;

  const Clock* clock = nullptr;                // outlives the runner
  std::function<void(TimePoint)> sleep_until;  // by that clock
};

// A cell depends on every token before it, a token drawn on the cells of its
// context, the request's seed and the position: mistakes about which KV belongs
// where show as other tokens. The time of a step is spread evenly over the
// layers. If asked for, logprobs say that the token drawn was certain.
// Errors: kInvalidArgument naming the option.
StatusOr<std::unique_ptr<ModelRunner>> CreateEmulatedRunner(
    EmulatedRunnerOptions options);

}  // namespace tidepool::engine
