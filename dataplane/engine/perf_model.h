// What an engine takes for its work, as stated by whoever measured or assumes
// it: what the emulated engine goes by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/engine/step_plan.h"

namespace tidepool::engine {

// A step takes
//   max(prefill_base if it has prompt tokens, decode_base if it decodes)
//   + prompt tokens × (per_prompt_token + their mean context
//                      × per_prompt_token_and_context_token)
//   + decoding sequences × per_sequence + their context × per_context_token
// of real time divided by `speed`.
struct PerfModel {
  Seconds load{0};  // until the weights are there

  Seconds prefill_base{0};
  Seconds per_prompt_token{0};
  Seconds per_prompt_token_and_context_token{0};

  Seconds decode_base{0};
  Seconds per_sequence{0};
  Seconds per_context_token{0};

  int64_t kv_capacity_tokens = 1 << 20;  // of all sequences together
  double speed = 1;                      // 10: ten times as fast

  // `speed` applied; at least 0, at most an hour.
  Duration StepTime(const StepPlan& plan) const;
};

// YAML, by the names of docs/emulated-engine.md. Errors: kInvalidArgument
// naming `name`, the key and why (unknown, missing, not a number, out of
// range).
StatusOr<PerfModel> ParsePerfModel(std::string_view text,
                                   const std::string& name);
// Errors also: kNotFound.
StatusOr<PerfModel> ReadPerfModel(const std::string& path);

}  // namespace tidepool::engine
