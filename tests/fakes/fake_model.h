// A model that is cheap, exact, and sensitive: every token depends on every
// byte of KV of its whole context, so that any mistake in who computed, copied
// or reused which page changes the output.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/engine/kv_layout.h"
#include "dataplane/engine/sampling_params.h"
#include "dataplane/engine/step_plan.h"

namespace tidepool::fakes {

struct FakeModelConfig {
  int32_t num_layers = 3;
  int32_t page_tokens = 4;
  int32_t vocab_size = 64;
  uint64_t weights = 1;  // other weights, other tokens

  // One 8-byte cell per (layer, position).
  engine::KvLayout Layout() const {
    return {.num_layers = num_layers,
            .num_kv_heads = 1,
            .head_dim = 1,
            .page_tokens = page_tokens,
            .element_bytes = 4};
  }
};

// Runs plans against `num_pages` of simulated memory. Externally synchronized.
class FakeRunner : public engine::ModelRunner {
 public:
  FakeRunner(const FakeModelConfig& config, int32_t num_pages);

  Status Execute(const engine::StepPlan& plan, engine::LayerObserver* observer,
                 engine::StepResult& result) override;

  // The parts of Execute, for a simulation in which time passes in between.
  void ComputeLayer(const engine::StepPlan& plan, int32_t layer);
  void Sample(const engine::StepPlan& plan, engine::StepResult& result) const;

  std::span<std::byte> memory() { return std::as_writable_bytes(cells()); }
  // One slice, as transfers read and write it.
  std::span<uint64_t> Slice(int32_t layer, engine::PageId page);

 private:
  std::span<uint64_t> cells() { return cells_; }
  uint64_t CellAt(int32_t layer, std::span<const engine::PageId> pages,
                  int32_t position) const;

  const FakeModelConfig config_;
  const int32_t num_pages_;
  std::vector<uint64_t> cells_;  // [layer][page][token in page]
};

struct OracleOutput {
  std::vector<int32_t> tokens;
  bool stopped = false;  // by EOS or a stop id; else by length
};

// The output of `prompt` on a machine where nothing ever goes wrong.
OracleOutput Oracle(const FakeModelConfig& config,
                    std::span<const int32_t> prompt,
                    const engine::SamplingParams& sampling,
                    std::span<const int32_t> eos_ids, int32_t max_model_len);

}  // namespace tidepool::fakes
