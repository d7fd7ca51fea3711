#include "tests/fakes/fake_model.h"

#include <algorithm>

#include "dataplane/base/check.h"
#include "dataplane/base/random.h"

namespace tidepool::fakes {
namespace {

// KV of one position: depends on that of the position before, hence on the
// whole prefix.
uint64_t NextCell(uint64_t weights, int32_t layer, uint64_t before,
                  int32_t token) {
  return Mix64(before * 3 + Mix64(weights + static_cast<uint64_t>(layer)) +
               static_cast<uint64_t>(token));
}

// What one cell adds to the logits: sums, so that an oracle can go on from the
// last position.
uint64_t Attend(uint64_t cell, int32_t layer, int32_t position) {
  return Mix64(cell ^ (static_cast<uint64_t>(layer) << 40) ^
               static_cast<uint64_t>(position));
}

int32_t Draw(uint64_t logits, uint64_t seed, int32_t position,
             int32_t vocab_size) {
  const uint64_t bits =
      Mix64(logits ^ RandomAt(seed, static_cast<uint64_t>(position)));
  return static_cast<int32_t>(bits % static_cast<uint64_t>(vocab_size));
}

}  // namespace

FakeRunner::FakeRunner(const FakeModelConfig& config, int32_t num_pages)
    : config_(config),
      num_pages_(num_pages),
      cells_(static_cast<size_t>(config.num_layers) * num_pages *
             config.page_tokens) {
  CHECK(static_cast<size_t>(config.Layout().slice_bytes()) ==
        config.page_tokens * sizeof(uint64_t));
}

std::span<uint64_t> FakeRunner::Slice(int32_t layer, engine::PageId page) {
  CHECK(layer >= 0 && layer < config_.num_layers && page >= 0 &&
        page < num_pages_);
  const auto size = static_cast<size_t>(config_.page_tokens);
  return cells().subspan(
      (static_cast<size_t>(layer) * num_pages_ + page) * size, size);
}

uint64_t FakeRunner::CellAt(int32_t layer,
                            std::span<const engine::PageId> pages,
                            int32_t position) const {
  const int32_t page_tokens = config_.page_tokens;
  const engine::PageId page = pages[position / page_tokens];
  return cells_[(static_cast<size_t>(layer) * num_pages_ + page) * page_tokens +
                position % page_tokens];
}

void FakeRunner::ComputeLayer(const engine::StepPlan& plan, int32_t layer) {
  for (const engine::SequenceStep& step : plan.sequences) {
    for (int32_t position = step.begin; position < step.end; ++position) {
      const uint64_t before =
          position == 0 ? 0 : CellAt(layer, step.pages, position - 1);
      Slice(layer,
            step.pages[position / config_.page_tokens])[position %
                                                        config_.page_tokens] =
          NextCell(config_.weights, layer, before, step.context[position]);
    }
  }
}

void FakeRunner::Sample(const engine::StepPlan& plan,
                        engine::StepResult& result) const {
  result.number = plan.number;
  result.sequences.resize(plan.sequences.size());
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const engine::SequenceStep& step = plan.sequences[i];
    engine::SequenceResult& out = result.sequences[i];
    out = {.sequence = step.sequence, .sampled = step.sample};
    if (!step.sample) continue;
    uint64_t logits = 0;
    for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
      for (int32_t position = 0; position < step.end; ++position) {
        logits += Attend(CellAt(layer, step.pages, position), layer, position);
      }
    }
    out.token = Draw(logits, step.sampling->seed, step.end, config_.vocab_size);
  }
}

Status FakeRunner::Execute(const engine::StepPlan& plan,
                           engine::LayerObserver* observer,
                           engine::StepResult& result) {
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    ComputeLayer(plan, layer);
    if (observer != nullptr) observer->OnLayer(plan, layer);
  }
  Sample(plan, result);
  return OkStatus();
}

OracleOutput Oracle(const FakeModelConfig& config,
                    std::span<const int32_t> prompt,
                    const engine::SamplingParams& sampling,
                    std::span<const int32_t> eos_ids, int32_t max_model_len) {
  OracleOutput output;
  std::vector<uint64_t> cells(static_cast<size_t>(config.num_layers));
  uint64_t logits = 0;
  int32_t position = 0;
  const auto append = [&](int32_t token) {
    for (int32_t layer = 0; layer < config.num_layers; ++layer) {
      cells[layer] = NextCell(config.weights, layer, cells[layer], token);
      logits += Attend(cells[layer], layer, position);
    }
    ++position;
  };
  for (const int32_t token : prompt) append(token);
  while (true) {
    const int32_t token =
        Draw(logits, sampling.seed, position, config.vocab_size);
    output.tokens.push_back(token);
    const auto is_in = [token](std::span<const int32_t> ids) {
      return std::ranges::find(ids, token) != ids.end();
    };
    if ((!sampling.ignore_eos && is_in(eos_ids)) ||
        is_in(sampling.stop_token_ids)) {
      output.stopped = true;
      return output;
    }
    if (std::ssize(output.tokens) >= sampling.max_tokens ||
        position + 1 >= max_model_len) {
      return output;
    }
    append(token);
  }
}

}  // namespace tidepool::fakes
