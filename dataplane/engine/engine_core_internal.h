// What the engine core knows about one request.
#pragma once

#include "dataplane/engine/engine_core.h"

namespace tidepool::engine {

enum class EngineCore::State {
  kWaiting,   // no pages
  kRunning,   // in the batch
  kReserved,  // pages wait for KV, a place in the batch is kept
  kHeld,      // ended, but a transfer may touch the pages
};

struct EngineCore::Sequence {
  SequenceId id = 0;
  uint64_t arrival = 0;  // the age: lower is older
  State state = State::kWaiting;
  bool prefill_only = false;
  bool preempted = false;  // at least once
  bool in_step = false;
  bool cancelled = false;  // while in a step; ends with it
  bool released = false;   // likewise, and need not be held
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, at the first admission
  int32_t computed = 0;       // positions [0, computed) have their KV in pages
  SamplingParams sampling;
  prefix::BlockKey key_root;
  std::vector<int32_t> tokens;
  std::vector<PageId> pages;
  std::vector<prefix::BlockKey> keys;  // of the leading whole blocks
  prefix::RadixTree::Pin pin;          // of those of them in the cache
  std::vector<PositionLogprobs> prompt_logprobs;  // until they are put out

  int32_t remaining() const {
    return static_cast<int32_t>(tokens.size()) - computed;
  }
  int32_t output_tokens() const {
    return static_cast<int32_t>(tokens.size()) - prompt_tokens;
  }
};

}  // namespace tidepool::engine
