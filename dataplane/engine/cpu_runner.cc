#include "dataplane/engine/cpu_runner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"
#include "dataplane/engine/rope_table.h"
#include "dataplane/engine/sampler.h"
#include "dataplane/engine/thread_pool.h"
#include "dataplane/engine/transformer.h"
#include "dataplane/engine/transformer_weights.h"

namespace tidepool::engine {
namespace {

constexpr int32_t kMaxThreads = 1024;
constexpr int32_t kMaxStepTokens = 1 << 20;

Status CheckRange(std::string_view name, int64_t value, int64_t min,
                  int64_t max) {
  if (value >= min && value <= max) return OkStatus();
  return InvalidArgument("{}: {} is not in [{}, {}]", name, value, min, max);
}

Status CheckOptions(const model::ModelConfig& config,
                    const CpuRunnerOptions& options) {
  RETURN_IF_ERROR(CheckRange("threads", options.threads, 1, kMaxThreads));
  RETURN_IF_ERROR(CheckRange("num_pages", options.num_pages, 1, INT32_MAX));
  RETURN_IF_ERROR(CheckRange("max_step_tokens", options.max_step_tokens, 1,
                             kMaxStepTokens));
  RETURN_IF_ERROR(CheckRange("max_step_sequences", options.max_step_sequences,
                             1, options.max_step_tokens));
  RETURN_IF_ERROR(CheckRange("max_model_len", options.max_model_len, 1,
                             config.max_position_embeddings));
  const int32_t tokens = options.page_tokens;
  if (tokens != 16 && tokens != 32 && tokens != 64)
    return InvalidArgument("page_tokens: {} is not 16, 32 or 64", tokens);
  const auto bytes = CheckedMul<int64_t>(
      KvLayoutFor(config, options.mode, tokens).page_bytes(),
      options.num_pages);
  if (!bytes.has_value() ||
      static_cast<uint64_t>(*bytes) != options.kv_pool.size()) {
    return InvalidArgument("kv_pool: {} bytes, not those of {} pages",
                           options.kv_pool.size(), options.num_pages);
  }
  if (!options.rope_frequencies.empty() &&
      std::ssize(options.rope_frequencies) != config.head_dim / 2) {
    return InvalidArgument("rope_frequencies: {} of them, not head_dim / 2",
                           options.rope_frequencies.size());
  }
  if (reinterpret_cast<uintptr_t>(options.kv_pool.data()) % 64 != 0)
    return InvalidArgument("kv_pool: not 64-byte aligned");
  return OkStatus();
}

class CpuRunner : public ModelRunner {
 public:
  CpuRunner(const model::ModelConfig& config, const CpuRunnerOptions& options,
            std::unique_ptr<ThreadPool> pool)
      : options_(options),
        pool_(std::move(pool)),
        sampler_(config.vocab_size, config.eos_token_ids) {
    wanted_.reserve(static_cast<size_t>(options.max_step_tokens));
    uses_.reserve(static_cast<size_t>(options.max_step_tokens));
  }

  Status Load(const model::ModelConfig& config, Isa isa,
              model::WeightSource& source) {
    ASSIGN_OR_RETURN(weights_, internal::LoadTransformerWeights(
                                   config, options_.mode, source, *pool_,
                                   options_.load_progress));
    const std::vector<float> rope = options_.rope_frequencies.empty()
                                        ? internal::RopeFrequencies(config)
                                        : options_.rope_frequencies;
    ASSIGN_OR_RETURN(
        transformer_,
        internal::Transformer::Create(
            config, internal::KernelsFor(options_.mode, isa), options_.mode,
            weights_, rope,
            {.step_tokens = options_.max_step_tokens,
             .positions = options_.max_model_len},
            KvLayoutFor(config, options_.mode, options_.page_tokens),
            options_.num_pages, options_.kv_pool, *pool_));
    return OkStatus();
  }

  Status Execute(const StepPlan& plan, LayerObserver* observer,
                 StepResult& result) override {
    CHECK(plan.num_tokens() <= options_.max_step_tokens);
    CHECK(std::ssize(plan.sequences) <= options_.max_step_sequences);
    PrepareResult(plan, result);
    ListWantedRows(plan);
    transformer_->Forward(plan, wanted_, observer);
    const auto count = static_cast<int32_t>(wanted_.size());
    constexpr int32_t kBatch = internal::Transformer::kLogitRowsMax;
    for (int32_t begin = 0; begin < count; begin += kBatch) {
      const int32_t rows = std::min(kBatch, count - begin);
      const internal::LogitRows logits =
          transformer_->ComputeLogits(begin, rows);
      for (int32_t i = 0; i < rows; ++i)
        UseLogits(plan, uses_[begin + i], logits.row(i), result);
    }
    return OkStatus();
  }

 private:
  // What a row of logits is for: the token at `position` + 1.
  struct Use {
    int32_t sequence;  // index in the plan
    int32_t position;
  };

  static bool WantsPromptLogprobs(const SequenceStep& step, int32_t position) {
    return step.sampling->prompt_logprobs >= 0 &&
           position + 1 < step.prompt_tokens;
  }

  static void PrepareResult(const StepPlan& plan, StepResult& result) {
    result.number = plan.number;
    result.sequences.resize(plan.sequences.size());
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      SequenceResult& sequence = result.sequences[i];
      sequence.sequence = plan.sequences[i].sequence;
      sequence.sampled = false;
      sequence.token = 0;
      sequence.logprobs.clear();
      sequence.prompt_logprobs.clear();
    }
  }

  void ListWantedRows(const StepPlan& plan) {
    wanted_.clear();
    uses_.clear();
    int32_t row = 0;
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      const SequenceStep& step = plan.sequences[i];
      for (int32_t position = step.begin; position < step.end;
           ++position, ++row) {
        const bool samples = step.sample && position == step.end - 1;
        if (!samples && !WantsPromptLogprobs(step, position)) continue;
        wanted_.push_back(row);
        uses_.push_back({static_cast<int32_t>(i), position});
      }
    }
  }

  void UseLogits(const StepPlan& plan, const Use& use,
                 std::span<const float> logits, StepResult& result) {
    const SequenceStep& step = plan.sequences[use.sequence];
    SequenceResult& out = result.sequences[use.sequence];
    if (options_.logits_observer != nullptr)
      options_.logits_observer->OnLogits(step, use.position, logits);
    if (WantsPromptLogprobs(step, use.position)) {
      sampler_.PromptLogprobs(logits, step.context[use.position + 1],
                              step.sampling->prompt_logprobs,
                              out.prompt_logprobs.emplace_back());
    }
    if (step.sample && use.position == step.end - 1)
      sampler_.Sample(logits, step, out);
  }

  const CpuRunnerOptions options_;
  const std::unique_ptr<ThreadPool> pool_;
  internal::TransformerWeights weights_;
  std::unique_ptr<internal::Transformer> transformer_;
  Sampler sampler_;
  std::vector<int32_t> wanted_;
  std::vector<Use> uses_;
};

}  // namespace

StatusOr<std::unique_ptr<ModelRunner>> CreateCpuRunner(
    const model::ModelConfig& config, model::WeightSource& source,
    const CpuRunnerOptions& options) {
  RETURN_IF_ERROR(CheckOptions(config, options));
  ASSIGN_OR_RETURN(const Isa isa, ResolveIsa(options.isa));
  ASSIGN_OR_RETURN(auto pool, ThreadPool::Create(options.threads));
  auto runner = std::make_unique<CpuRunner>(config, options, std::move(pool));
  RETURN_IF_ERROR(runner->Load(config, isa, source));
  return std::unique_ptr<ModelRunner>(std::move(runner));
}

}  // namespace tidepool::engine
