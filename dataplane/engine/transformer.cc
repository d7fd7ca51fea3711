#include "dataplane/engine/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"

namespace tidepool::engine::internal {
namespace {

// Loops over rows that are cheaper than waking other threads.
constexpr int64_t kInlineRows = 8;

// Blocks of rows are cut so that few tiles of the kernels are partial; it
// divides kGemmRowsMax.
constexpr int32_t kRowMultiple = 6;
static_assert(kGemmRowsMax % kRowMultiple == 0);

// Rows lie an odd number of cache lines apart, so that tiles of several rows
// do not compete for one cache set.
int64_t StrideOf(int64_t columns, int64_t element_bytes) {
  const int64_t line = 64 / element_bytes;
  return (CeilDiv(columns, line) | 1) * line;
}

}  // namespace

Transformer::Transformer(const model::ModelConfig& config,
                         const KernelTable& kernels, ComputeMode mode,
                         const TransformerWeights& weights,
                         std::span<const float> rope_frequencies, Limits limits,
                         const KvLayout& layout, int32_t num_pages,
                         std::span<std::byte> kv_pool, ThreadPool& pool)
    : config_(config),
      kernels_(kernels),
      mode_(mode),
      element_bytes_(mode == ComputeMode::kFloat32 ? 4 : 2),
      group_(static_cast<int32_t>(config.num_heads / config.num_kv_heads)),
      weights_(weights),
      layout_(layout),
      num_pages_(num_pages),
      kv_pool_(kv_pool.data()),
      pool_(pool),
      rope_(rope_frequencies, limits.positions) {}

StatusOr<std::unique_ptr<Transformer>> Transformer::Create(
    const model::ModelConfig& config, const KernelTable& kernels,
    ComputeMode mode, const TransformerWeights& weights,
    std::span<const float> rope_frequencies, Limits limits,
    const KvLayout& layout, int32_t num_pages, std::span<std::byte> kv_pool,
    ThreadPool& pool) {
  std::unique_ptr<Transformer> transformer(
      new Transformer(config, kernels, mode, weights, rope_frequencies, limits,
                      layout, num_pages, kv_pool, pool));
  RETURN_IF_ERROR(transformer->Allocate(limits));
  return transformer;
}

StatusOr<Transformer::Matrix> Transformer::MakeFloats(int64_t rows,
                                                      int64_t columns) const {
  Matrix matrix;
  matrix.stride = StrideOf(columns, sizeof(float));
  ASSIGN_OR_RETURN(matrix.array, Array::Create(rows * matrix.stride *
                                               int64_t{sizeof(float)}));
  return matrix;
}

StatusOr<Transformer::Matrix> Transformer::MakeActivations(
    int64_t rows, int64_t columns) const {
  Matrix matrix;
  matrix.stride = StrideOf(columns, element_bytes_);
  ASSIGN_OR_RETURN(matrix.array,
                   Array::Create(rows * matrix.stride * element_bytes_));
  return matrix;
}

Status Transformer::Allocate(const Limits& limits) {
  const int64_t rows = limits.step_tokens;
  const int64_t q = config_.q_size();
  ASSIGN_OR_RETURN(hidden_, MakeFloats(rows, config_.hidden_size));
  ASSIGN_OR_RETURN(normed_, MakeActivations(rows, config_.hidden_size));
  ASSIGN_OR_RETURN(projected_, MakeFloats(rows, q + 2 * config_.kv_size()));
  ASSIGN_OR_RETURN(queries_, MakeActivations(rows, q));
  ASSIGN_OR_RETURN(attended_, MakeActivations(rows, q));
  ASSIGN_OR_RETURN(gated_, MakeActivations(rows, config_.intermediate_size));
  ASSIGN_OR_RETURN(logits_, MakeFloats(std::min<int64_t>(rows, kLogitRowsMax),
                                       config_.vocab_size));
  for (int32_t thread = 0; thread < pool_.threads(); ++thread) {
    ASSIGN_OR_RETURN(Array gemm, Array::Create(int64_t{kGemmRowsMax} *
                                               kGroupOutputs * sizeof(float)));
    gemm_scratch_.push_back(std::move(gemm));
    ASSIGN_OR_RETURN(Array attention, Array::Create(AttentionScratchBytes(
                                          group_, layout_.head_dim)));
    attention_scratch_.push_back(std::move(attention));
  }
  origins_.reserve(static_cast<size_t>(rows));
  tasks_.reserve(static_cast<size_t>(rows));
  last_layer_tasks_.reserve(static_cast<size_t>(rows));
  return OkStatus();
}

void Transformer::Forward(const StepPlan& plan, std::span<const int32_t> wanted,
                          LayerObserver* observer) {
  BeginBatch(plan);
  TasksOfRows(plan, wanted);
  Embed(plan);
  auto rows = static_cast<int32_t>(origins_.size());
  const auto last = static_cast<int32_t>(weights_.layers.size()) - 1;
  for (int32_t layer = 0; layer <= last; ++layer) {
    const LayerWeights& weights = weights_.layers[layer];
    Normalize(weights.attention_norm, rows);
    Multiply(weights.qkv, normed_, rows, Epilogue::kStore, projected_);
    WriteKv(plan, layer);
    if (observer != nullptr) observer->OnLayer(plan, layer);
    Attend(layer, layer < last ? tasks_ : last_layer_tasks_);
    if (layer == last) {
      // Nobody looks at the other rows any more.
      KeepRows(wanted);
      rows = static_cast<int32_t>(wanted.size());
    }
    Multiply(weights.attention_output, attended_, rows, Epilogue::kAdd,
             hidden_);
    Normalize(weights.mlp_norm, rows);
    Multiply(weights.gate_up, normed_, rows, Epilogue::kSwiGlu, gated_);
    Multiply(weights.down, gated_, rows, Epilogue::kAdd, hidden_);
  }
  Normalize(weights_.final_norm, rows);
}

LogitRows Transformer::ComputeLogits(int32_t begin, int32_t count) {
  CHECK(count <= kLogitRowsMax);
  Multiply(weights_.output_matrix(), nullptr, normed_, begin, count,
           Epilogue::kStore, logits_);
  return {.data = logits_.array.As<float>(),
          .stride = logits_.stride,
          .vocab_size = config_.vocab_size};
}

void Transformer::BeginBatch(const StepPlan& plan) {
  origins_.clear();
  tasks_.clear();
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const SequenceStep& step = plan.sequences[i];
    AddTasks(step, static_cast<int32_t>(origins_.size()), step.begin,
             step.end - step.begin, tasks_);
    for (int32_t position = step.begin; position < step.end; ++position)
      origins_.push_back({static_cast<int32_t>(i), position});
  }
}

void Transformer::AddTasks(const SequenceStep& step, int32_t row,
                           int32_t position, int32_t tokens,
                           std::vector<AttentionTask>& tasks) const {
  const int32_t task_tokens = AttentionRowsMax(group_) / group_;
  for (int32_t i = 0; i < tokens; i += task_tokens) {
    tasks.push_back({.step = &step,
                     .row = row + i,
                     .tokens = std::min(task_tokens, tokens - i),
                     .position = position + i});
  }
}

// Consecutive wanted rows of one sequence stay together.
void Transformer::TasksOfRows(const StepPlan& plan,
                              std::span<const int32_t> wanted) {
  last_layer_tasks_.clear();
  size_t i = 0;
  while (i < wanted.size()) {
    const int32_t row = wanted[i];
    const int32_t sequence = origins_[row].sequence;
    int32_t tokens = 0;
    while (i < wanted.size() && wanted[i] == row + tokens &&
           origins_[wanted[i]].sequence == sequence) {
      ++i, ++tokens;
    }
    AddTasks(plan.sequences[sequence], row, origins_[row].position, tokens,
             last_layer_tasks_);
  }
}

void Transformer::Embed(const StepPlan& plan) {
  pool_.For(static_cast<int64_t>(origins_.size()), kInlineRows,
            [&](int64_t begin, int64_t end, int32_t /*thread*/) {
              for (int64_t row = begin; row < end; ++row) {
                const auto [sequence, position] = origins_[row];
                weights_.embedding.ReadRow(
                    plan.sequences[sequence].context[position],
                    FloatsAt(hidden_, row));
              }
            });
}

void Transformer::Normalize(const std::vector<float>& weight, int32_t rows) {
  pool_.For(rows, kInlineRows,
            [&](int64_t begin, int64_t end, int32_t /*thread*/) {
              kernels_.rms_norm(
                  {.x = FloatsAt(hidden_, begin),
                   .x_stride = hidden_.stride,
                   .weight = weight.data(),
                   .out = ActivationsAt(normed_, begin),
                   .out_stride = normed_.stride,
                   .rows = static_cast<int32_t>(end - begin),
                   .size = static_cast<int32_t>(config_.hidden_size),
                   .epsilon = static_cast<float>(config_.rms_norm_eps)});
            });
}

void Transformer::WriteKv(const StepPlan& plan, int32_t layer) {
  const LayerWeights& weights = weights_.layers[layer];
  const auto optional = [](const std::vector<float>& values) {
    return values.empty() ? nullptr : values.data();
  };
  // Attention works with powers of two.
  const auto scale = static_cast<float>(
      std::numbers::log2e / std::sqrt(static_cast<double>(config_.head_dim)));
  const auto write = [&](int64_t row) {
    const auto [sequence, position] = origins_[row];
    const PageId page =
        plan.sequences[sequence].pages[position / layout_.page_tokens];
    kernels_.qkv(
        {.qkv = FloatsAt(projected_, row),
         .heads = static_cast<int32_t>(config_.num_heads),
         .kv_heads = layout_.num_kv_heads,
         .head_dim = layout_.head_dim,
         .q_norm = optional(weights.q_norm),
         .k_norm = optional(weights.k_norm),
         .epsilon = static_cast<float>(config_.rms_norm_eps),
         .cosines = rope_.cosines(position),
         .sines = rope_.sines(position),
         .q_scale = scale,
         .q = ActivationsAt(queries_, row),
         .slice = kv_pool_ + layout_.SliceOffset(layer, page, num_pages_),
         .page_tokens = layout_.page_tokens,
         .token_in_page = position % layout_.page_tokens});
  };
  pool_.For(static_cast<int64_t>(origins_.size()), kInlineRows,
            [&](int64_t begin, int64_t end, int32_t /*thread*/) {
              for (int64_t row = begin; row < end; ++row) write(row);
            });
}

void Transformer::Attend(int32_t layer, std::span<const AttentionTask> tasks) {
  const int64_t kv_heads = layout_.num_kv_heads;
  pool_.For(static_cast<int64_t>(tasks.size()) * kv_heads, 1,
            [&](int64_t begin, int64_t end, int32_t thread) {
              for (int64_t i = begin; i < end; ++i) {
                AttendTask(layer, tasks[i / kv_heads], i % kv_heads,
                           attention_scratch_[thread].As<std::byte>());
              }
            });
}

void Transformer::AttendTask(int32_t layer, const AttentionTask& task,
                             int64_t kv_head, std::byte* scratch) {
  const int64_t offset = kv_head * group_ * config_.head_dim * element_bytes_;
  kernels_.attention(
      {.q = ActivationsAt(queries_, task.row) + offset,
       .out = ActivationsAt(attended_, task.row) + offset,
       .stride = queries_.stride,
       .tokens = task.tokens,
       .position = task.position,
       .group = group_,
       .head_dim = layout_.head_dim,
       .layer = kv_pool_ + layout_.SliceOffset(layer, 0, num_pages_),
       .slice_bytes = layout_.slice_bytes(),
       .pages = task.step->pages.data(),
       .page_tokens = layout_.page_tokens,
       .kv_head = static_cast<int32_t>(kv_head),
       .kv_heads = layout_.num_kv_heads,
       .scratch = scratch});
}

void Transformer::KeepRows(std::span<const int32_t> wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == static_cast<int32_t>(i)) continue;
    std::memcpy(FloatsAt(hidden_, i), FloatsAt(hidden_, wanted[i]),
                hidden_.stride * sizeof(float));
    std::memcpy(ActivationsAt(attended_, i),
                ActivationsAt(attended_, wanted[i]),
                attended_.stride * element_bytes_);
  }
}

void Transformer::Multiply(const Projection& projection, const Matrix& a,
                           int32_t rows, Epilogue epilogue, const Matrix& out) {
  Multiply(projection.matrix,
           projection.bias.empty() ? nullptr : projection.bias.data(), a, 0,
           rows, epilogue, out);
}

void Transformer::Multiply(const PackedMatrix& matrix, const float* bias,
                           const Matrix& a, int32_t first_row, int32_t rows,
                           Epilogue epilogue, const Matrix& out) {
  if (rows == 0) return;
  const int64_t elements_per_unit = sizeof(Unit) / element_bytes_;
  const int64_t out_bytes =
      epilogue == Epilogue::kSwiGlu ? element_bytes_ : int64_t{sizeof(float)};
  const int32_t block_rows =
      CeilDiv(CeilDiv(rows, CeilDiv(rows, kGemmRowsMax)), kRowMultiple) *
      kRowMultiple;
  const int32_t blocks = CeilDiv(rows, block_rows);
  const int64_t groups = matrix.groups();
  const auto run = [&](int32_t block, int64_t begin, int64_t end,
                       int32_t thread) {
    const int32_t row = block * block_rows;
    kernels_.gemm(
        {.a = a.array.As<Unit>() +
              (first_row + row) * (a.stride / elements_per_unit),
         .a_stride = a.stride / elements_per_unit,
         .rows = std::min(block_rows, rows - row),
         .weights = matrix.data(),
         .units = matrix.units(),
         .group_begin = static_cast<int32_t>(begin),
         .group_end = static_cast<int32_t>(end),
         .epilogue = epilogue,
         .bias = bias,
         .out = out.array.As<std::byte>() + row * out.stride * out_bytes,
         .out_stride = out.stride,
         .outputs = matrix.outputs(),
         .scratch = gemm_scratch_[thread].As<float>()});
  };
  pool_.For(blocks * groups, 1,
            [&](int64_t begin, int64_t end, int32_t thread) {
              while (begin < end) {
                const int64_t block = begin / groups;
                const int64_t stop = std::min(end, (block + 1) * groups);
                run(static_cast<int32_t>(block), begin - block * groups,
                    stop - block * groups, thread);
                begin = stop;
              }
            });
}

}  // namespace tidepool::engine::internal
