// The forward pass of a decoder-only transformer over a batch of sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/engine/kernels.h"
#include "dataplane/engine/numerics.h"
#include "dataplane/engine/packed_weights.h"
#include "dataplane/engine/rope_table.h"
#include "dataplane/engine/step_plan.h"
#include "dataplane/engine/thread_pool.h"
#include "dataplane/engine/transformer_weights.h"
#include "dataplane/model/config.h"

namespace tidepool::engine::internal {

// Where a row of a batch comes from.
struct RowOrigin {
  int32_t sequence;  // index in the plan
  int32_t position;
};

// Valid until the transformer computes again.
struct LogitRows {
  const float* data;
  int64_t stride;
  int64_t vocab_size;

  std::span<const float> row(int64_t i) const {
    return {data + i * stride, static_cast<size_t>(vocab_size)};
  }
};

// Confined to one thread; uses a pool of more. All memory is made by Create.
//
// Rounding points in bfloat16 mode, besides the weights: what enters a matrix
// product (after norms, attention and SwiGLU), queries after rotation and
// scaling, keys after rotation, values, and attention weights. The residual
// stream and all sums are float32.
class Transformer {
 public:
  struct Limits {
    int32_t step_tokens;  // of one plan
    int32_t positions;    // of one sequence
  };
  // Rows that ComputeLogits takes at most.
  static constexpr int32_t kLogitRowsMax = 64;

  // `weights`, `pool` and `kv_pool` must outlive the transformer. Errors:
  // kResourceExhausted.
  static StatusOr<std::unique_ptr<Transformer>> Create(
      const model::ModelConfig& config, const KernelTable& kernels,
      ComputeMode mode, const TransformerWeights& weights,
      std::span<const float> rope_frequencies, Limits limits,
      const KvLayout& layout, int32_t num_pages, std::span<std::byte> kv_pool,
      ThreadPool& pool);

  // Writes the KV of all rows of `plan` and leaves the final hidden states of
  // those that `wanted` lists. `wanted[i]` is a row index (sequences one after
  // another in the plan's order), ascending. `observer` may be null.
  void Forward(const StepPlan& plan, std::span<const int32_t> wanted,
               LayerObserver* observer);

  // Logits of wanted[begin .. begin + count) of the last Forward; `count` <=
  // kLogitRowsMax.
  LogitRows ComputeLogits(int32_t begin, int32_t count);

 private:
  // Consecutive tokens of one sequence whose attention is computed together.
  struct AttentionTask {
    const SequenceStep* step;
    int32_t row, tokens;  // in the batch
    int32_t position;     // of the first token
  };
  // A row-major matrix of activations or floats.
  struct Matrix {
    Array array;
    int64_t stride = 0;  // in elements
  };

  Transformer(const model::ModelConfig& config, const KernelTable& kernels,
              ComputeMode mode, const TransformerWeights& weights,
              std::span<const float> rope_frequencies, Limits limits,
              const KvLayout& layout, int32_t num_pages,
              std::span<std::byte> kv_pool, ThreadPool& pool);
  Status Allocate(const Limits& limits);
  StatusOr<Matrix> MakeFloats(int64_t rows, int64_t columns) const;
  StatusOr<Matrix> MakeActivations(int64_t rows, int64_t columns) const;

  void BeginBatch(const StepPlan& plan);
  void Embed(const StepPlan& plan);
  void Normalize(const std::vector<float>& weight, int32_t rows);
  void WriteKv(const StepPlan& plan, int32_t layer);
  void Attend(int32_t layer, std::span<const AttentionTask> tasks);
  void AttendTask(int32_t layer, const AttentionTask& task, int64_t kv_head,
                  std::byte* scratch);
  void KeepRows(std::span<const int32_t> wanted);
  void AddTasks(const SequenceStep& step, int32_t row, int32_t position,
                int32_t tokens, std::vector<AttentionTask>& tasks) const;
  void TasksOfRows(const StepPlan& plan, std::span<const int32_t> wanted);
  void Multiply(const Projection& projection, const Matrix& a, int32_t rows,
                Epilogue epilogue, const Matrix& out);
  void Multiply(const PackedMatrix& matrix, const float* bias, const Matrix& a,
                int32_t first_row, int32_t rows, Epilogue epilogue,
                const Matrix& out);

  std::byte* ActivationsAt(const Matrix& matrix, int64_t row) const {
    return matrix.array.As<std::byte>() + row * matrix.stride * element_bytes_;
  }
  static float* FloatsAt(const Matrix& matrix, int64_t row) {
    return matrix.array.As<float>() + row * matrix.stride;
  }

  const model::ModelConfig config_;
  const KernelTable& kernels_;
  const ComputeMode mode_;
  const int64_t element_bytes_;  // of activations and KV
  const int32_t group_;          // query heads per KV head
  const TransformerWeights& weights_;
  const KvLayout layout_;
  const int32_t num_pages_;
  std::byte* const kv_pool_;
  ThreadPool& pool_;
  const RopeTable rope_;

  std::vector<RowOrigin> origins_;  // of the batch
  std::vector<AttentionTask> tasks_, last_layer_tasks_;
  Matrix hidden_;     // the residual stream, floats
  Matrix normed_;     // activations
  Matrix projected_;  // q, k and v, floats
  Matrix queries_;    // activations
  Matrix attended_;   // activations
  Matrix gated_;      // activations
  Matrix logits_;     // floats
  std::vector<Array> gemm_scratch_, attention_scratch_;  // by thread
};

}  // namespace tidepool::engine::internal
