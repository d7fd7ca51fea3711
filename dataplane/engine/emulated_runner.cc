#include "dataplane/engine/emulated_runner.h"

#include <algorithm>
#include <cstring>

#include "dataplane/base/random.h"

namespace tidepool::engine {
namespace {

constexpr int32_t kLayers = 4;

uint64_t NextCell(int32_t layer, uint64_t before, int32_t token) {
  return Mix64(before * 3 + Mix64(static_cast<uint64_t>(layer)) +
               static_cast<uint32_t>(token));
}

class EmulatedRunner : public ModelRunner {
 public:
  explicit EmulatedRunner(EmulatedRunnerOptions options)
      : options_(std::move(options)),
        cells_(reinterpret_cast<uint64_t*>(options_.kv_pool.data()),
               options_.kv_pool.size() / sizeof(uint64_t)) {}

  Status Execute(const StepPlan& plan, LayerObserver* observer,
                 StepResult& result) override {
    const TimePoint start = options_.clock->Now();
    const Duration time = options_.perf.StepTime(plan);
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      ComputeLayer(plan, layer);
      options_.sleep_until(start + time * (layer + 1) / kLayers);
      if (observer != nullptr) observer->OnLayer(plan, layer);
    }
    result.number = plan.number;
    result.sequences.resize(plan.sequences.size());
    for (size_t i = 0; i < plan.sequences.size(); ++i)
      Sample(plan.sequences[i], result.sequences[i]);
    return OkStatus();
  }

 private:
  uint64_t& Cell(int32_t layer, std::span<const PageId> pages,
                 int32_t position) {
    const int32_t page_tokens = options_.page_tokens;
    const PageId page = pages[position / page_tokens];
    return cells_[(static_cast<size_t>(layer) * options_.num_pages + page) *
                      page_tokens +
                  position % page_tokens];
  }

  void ComputeLayer(const StepPlan& plan, int32_t layer) {
    for (const SequenceStep& step : plan.sequences) {
      uint64_t before =
          step.begin == 0 ? 0 : Cell(layer, step.pages, step.begin - 1);
      for (int32_t position = step.begin; position < step.end; ++position) {
        before = NextCell(layer, before, step.context[position]);
        Cell(layer, step.pages, position) = before;
      }
    }
  }

  // Of the last cell and, so that lost pages do not go unnoticed, one of the
  // cells before it.
  uint64_t Attend(const SequenceStep& step) {
    const uint64_t draw =
        RandomAt(step.sampling->seed, static_cast<uint64_t>(step.end));
    const auto earlier =
        static_cast<int32_t>(draw % static_cast<uint64_t>(step.end));
    uint64_t bits = draw;
    for (int32_t layer = 0; layer < kLayers; ++layer)
      bits = Mix64(bits ^ Cell(layer, step.pages, step.end - 1) ^
                   Cell(layer, step.pages, earlier) * 5);
    return bits;
  }

  bool MayDraw(const SequenceStep& step, int32_t token) const {
    if (std::ranges::find(options_.eos_ids, token) != options_.eos_ids.end())
      return false;
    return step.token_mask.empty() ||
           (step.token_mask[token / 64] >> (token % 64) & 1) != 0;
  }

  void Sample(const SequenceStep& step, SequenceResult& out) {
    out = {.sequence = step.sequence, .sampled = step.sample};
    if (step.sampling->prompt_logprobs >= 0) {
      const int32_t end = std::min({step.end + 1, step.prompt_tokens,
                                    static_cast<int32_t>(step.context.size())});
      for (int32_t position = step.begin + 1; position < end; ++position)
        out.prompt_logprobs.push_back(
            {{.token = step.context[position], .logprob = 0, .rank = 1}});
    }
    if (!step.sample) return;
    const auto size = static_cast<uint64_t>(options_.vocab_size);
    const uint64_t first = Attend(step) % size;
    for (uint64_t i = 0; i < size; ++i) {
      out.token = static_cast<int32_t>((first + i) % size);
      if (MayDraw(step, out.token)) break;
    }
    if (step.sampling->logprobs >= 0)
      out.logprobs = {{.token = out.token, .logprob = 0, .rank = 1}};
  }

  EmulatedRunnerOptions options_;
  std::span<uint64_t> cells_;  // [layer][page][token in page]
};

}  // namespace

KvLayout EmulatedKvLayout(int32_t page_tokens) {
  return {.num_layers = kLayers,
          .num_kv_heads = 1,
          .head_dim = 1,
          .page_tokens = page_tokens,
          .element_bytes = 4};
}

StatusOr<std::unique_ptr<ModelRunner>> CreateEmulatedRunner(
    EmulatedRunnerOptions options) {
  if (options.page_tokens < 1)
    return InvalidArgument("page_tokens: {} is not positive",
                           options.page_tokens);
  const auto wanted = static_cast<uint64_t>(
                          EmulatedKvLayout(options.page_tokens).page_bytes()) *
                      static_cast<uint64_t>(std::max(0, options.num_pages));
  if (options.num_pages < 1 || options.kv_pool.size() != wanted)
    return InvalidArgument("kv_pool: {} bytes, where {} pages take {}",
                           options.kv_pool.size(), options.num_pages, wanted);
  if (options.vocab_size <= std::ssize(options.eos_ids))
    return InvalidArgument("vocab_size: {} leaves no token to draw",
                           options.vocab_size);
  if (options.clock == nullptr || options.sleep_until == nullptr)
    return InvalidArgument("clock, sleep_until: both are needed");
  return std::make_unique<EmulatedRunner>(std::move(options));
}

}  // namespace tidepool::engine
