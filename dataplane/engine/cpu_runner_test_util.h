// A runner with its own KV pool, and plans made by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/digest.h"
#include "dataplane/base/random.h"
#include "dataplane/engine/cpu_runner.h"
#include "dataplane/engine/numerics.h"
#include "dataplane/model/config.h"
#include "dataplane/model/weights.h"

namespace tidepool::engine {

using Logits = std::vector<float>;

// Keeps logits by (sequence, position).
class LogitsRecorder : public LogitsObserver {
 public:
  void OnLogits(const SequenceStep& step, int32_t position,
                std::span<const float> logits) override {
    rows_[{step.sequence, position}].assign(logits.begin(), logits.end());
  }
  const Logits& at(SequenceId sequence, int32_t position) const {
    return rows_.at({sequence, position});
  }

 private:
  std::map<std::pair<SequenceId, int32_t>, Logits> rows_;
};

// Random weights of every tensor of a model, norms around one, in float32.
class RandomWeights : public model::WeightSource {
 public:
  explicit RandomWeights(uint64_t seed) : seed_(seed) {}

  StatusOr<model::TensorView> Get(std::string_view name,
                                  std::span<const int64_t> shape) override {
    const std::vector<float>& values = Values(name, shape);
    return model::TensorView{.dtype = model::DType::kFloat32,
                             .shape = {shape.begin(), shape.end()},
                             .data = std::as_bytes(std::span(values))};
  }
  StatusOr<Sha256Digest> Digest() override { return Sha256Of("random"); }

  const std::vector<float>& Values(std::string_view name,
                                   std::span<const int64_t> shape) {
    std::vector<float>& values = tensors_[std::string(name)];
    if (!values.empty()) return values;
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    Random random(Checksum64(name, seed_));
    const bool is_norm = name.find("norm") != name.npos;
    const double scale =
        shape.size() == 2 ? 1.7 / std::sqrt(static_cast<double>(shape[1])) : .3;
    for (int64_t i = 0; i < count; ++i) {
      const double value = (random.Unit() + random.Unit() - 1) * 2 * scale;
      values.push_back(static_cast<float>(is_norm ? 1 + value : value));
    }
    return values;
  }

 private:
  uint64_t seed_;
  std::map<std::string, std::vector<float>> tensors_;
};

// Small models with everything their families have: odd sizes, grouped heads,
// biases, norms, rescaled rotary frequencies.
inline model::ModelConfig SmallLlama() {
  return {.architecture = model::Architecture::kLlama,
          .vocab_size = 203,
          .hidden_size = 96,
          .intermediate_size = 150,
          .num_layers = 3,
          .num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = 34,
          .max_position_embeddings = 2048,
          .rms_norm_eps = 1e-5,
          .rope_theta = 500000,
          .rope_scaling =
              model::Llama3RopeScaling{.factor = 8,
                                       .low_freq_factor = 1,
                                       .high_freq_factor = 4,
                                       .original_max_position_embeddings = 64},
          .attention_qkv_bias = true,
          .attention_output_bias = true,
          .mlp_bias = true,
          .dtype = model::DType::kFloat32};
}
inline model::ModelConfig SmallQwen2() {
  return {.architecture = model::Architecture::kQwen2,
          .vocab_size = 256,
          .hidden_size = 64,
          .intermediate_size = 176,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 1,
          .head_dim = 16,
          .max_position_embeddings = 2048,
          .rope_theta = 1e6,
          .tie_word_embeddings = true,
          .attention_qkv_bias = true,
          .dtype = model::DType::kFloat32};
}
inline model::ModelConfig SmallQwen3() {
  return {.architecture = model::Architecture::kQwen3,
          .vocab_size = 130,
          .hidden_size = 81,
          .intermediate_size = 97,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 4,
          .head_dim = 48,
          .max_position_embeddings = 2048,
          .tie_word_embeddings = true,
          .qk_norm = true,
          .dtype = model::DType::kFloat32};
}

inline std::vector<int32_t> RandomPrompt(Random& random, int64_t vocab_size,
                                         int32_t tokens) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < tokens; ++i) {
    prompt.push_back(
        static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocab_size))));
  }
  return prompt;
}

struct RunnerShape {
  ComputeMode mode = ComputeMode::kFloat32;
  Isa isa = Isa::kPortable;
  int32_t threads = 1;
  int32_t page_tokens = 16;
  int32_t pool_tokens = 4096;
  int32_t step_tokens = 1024;
  int32_t step_sequences = 128;
  int32_t model_len = 1024;
  // Pages are handed out in an order that this seed shuffles.
  uint64_t page_seed = 1;
  bool records_logits = true;
  std::vector<float> rope_frequencies;  // those of the model
};

// One sequence as the planner would hold it.
struct TestSequence {
  SequenceId id = 0;
  std::vector<int32_t> context;
  int32_t prompt_tokens = 0;
  int32_t done = 0;  // positions whose KV is written
  std::vector<PageId> pages;
  SamplingParams sampling{.temperature = 0};
};

class TestRunner {
 public:
  TestRunner(const model::ModelConfig& config, model::WeightSource& source,
             const RunnerShape& shape)
      : shape_(shape),
        layout_(KvLayoutFor(config, shape.mode, shape.page_tokens)),
        num_pages_(shape.pool_tokens / shape.page_tokens) {
    const auto bytes = static_cast<size_t>(layout_.page_bytes() * num_pages_);
    pool_.reset(static_cast<std::byte*>(
        std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
    // NaNs in both element types: nothing may read what was not written.
    std::memset(pool_.get(), 0xff, bytes);
    for (PageId page = 0; page < num_pages_; ++page) free_.push_back(page);
    Random random(shape.page_seed);
    for (size_t i = free_.size(); i > 1; --i)
      std::swap(free_[i - 1], free_[random.Below(i)]);
    CpuRunnerOptions options{
        .mode = shape.mode,
        .threads = shape.threads,
        .isa = shape.isa,
        .kv_pool = {pool_.get(), bytes},
        .num_pages = num_pages_,
        .page_tokens = shape.page_tokens,
        .max_step_tokens = shape.step_tokens,
        .max_step_sequences = shape.step_sequences,
        .max_model_len = shape.model_len,
        .logits_observer = shape.records_logits ? &logits_ : nullptr,
        .rope_frequencies = shape.rope_frequencies};
    auto runner = CreateCpuRunner(config, source, options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  TestSequence Sequence(SequenceId id, std::vector<int32_t> prompt) const {
    TestSequence sequence;
    sequence.id = id;
    sequence.prompt_tokens = static_cast<int32_t>(prompt.size());
    sequence.context = std::move(prompt);
    return sequence;
  }

  // Continues with the KV of another's first `tokens` positions, whole pages.
  void Adopt(TestSequence& sequence, const TestSequence& other,
             int32_t tokens) {
    ASSERT_EQ(tokens % shape_.page_tokens, 0);
    sequence.pages.assign(other.pages.begin(),
                          other.pages.begin() + tokens / shape_.page_tokens);
    sequence.done = tokens;
  }

  void Free(TestSequence& sequence) {
    free_.insert(free_.end(), sequence.pages.begin(), sequence.pages.end());
    sequence.pages.clear();
    sequence.done = 0;
  }

  // Computes up to `tokens` more positions of each; sequences whose context is
  // then covered get their next token.
  void Step(std::vector<std::pair<TestSequence*, int32_t>> parts,
            LayerObserver* observer = nullptr) {
    StepPlan plan;
    plan.number = ++steps_;
    for (auto& [sequence, tokens] : parts) {
      const auto size = static_cast<int32_t>(sequence->context.size());
      const int32_t end = std::min(size, sequence->done + tokens);
      while (std::ssize(sequence->pages) * shape_.page_tokens < end) {
        sequence->pages.push_back(free_.back());
        free_.pop_back();
      }
      plan.sequences.push_back({.sequence = sequence->id,
                                .context = sequence->context,
                                .prompt_tokens = sequence->prompt_tokens,
                                .begin = sequence->done,
                                .end = end,
                                .pages = sequence->pages,
                                .sample = end == size,
                                .sampling = &sequence->sampling});
    }
    ASSERT_TRUE(runner_->Execute(plan, observer, result_).ok());
    for (size_t i = 0; i < parts.size(); ++i) {
      TestSequence& sequence = *parts[i].first;
      sequence.done = plan.sequences[i].end;
      if (result_.sequences[i].sampled)
        sequence.context.push_back(result_.sequences[i].token);
    }
  }

  // Runs `sequence` alone in chunks until it has `tokens` new tokens.
  void Generate(TestSequence& sequence, int32_t tokens,
                int32_t chunk = 1 << 20) {
    const auto wanted = sequence.prompt_tokens + tokens;
    while (std::ssize(sequence.context) < wanted) Step({{&sequence, chunk}});
  }

  // The KV of positions [0, done), [layer][K, V][head][position][dim].
  std::vector<std::byte> KvOf(const TestSequence& sequence) const {
    std::vector<std::byte> bytes;
    const int64_t row = layout_.row_elements() * layout_.element_bytes;
    for (int32_t layer = 0; layer < layout_.num_layers; ++layer) {
      for (int64_t plane = 0; plane < 2 * layout_.num_kv_heads; ++plane) {
        for (int32_t p = 0; p < sequence.done; ++p) {
          const std::byte* from =
              pool_.get() +
              layout_.SliceOffset(layer, sequence.pages[p / shape_.page_tokens],
                                  num_pages_) +
              (plane * shape_.page_tokens + p % shape_.page_tokens) * row;
          bytes.insert(bytes.end(), from, from + row);
        }
      }
    }
    return bytes;
  }

  const LogitsRecorder& logits() const { return logits_; }
  const StepResult& result() const { return result_; }
  ModelRunner& runner() { return *runner_; }
  const KvLayout& layout() const { return layout_; }

 private:
  struct FreeMemory {
    void operator()(std::byte* p) const { std::free(p); }
  };

  const RunnerShape shape_;
  const KvLayout layout_;
  const int32_t num_pages_;
  std::unique_ptr<std::byte, FreeMemory> pool_;
  std::vector<PageId> free_;
  LogitsRecorder logits_;
  std::unique_ptr<ModelRunner> runner_;
  StepResult result_;
  uint64_t steps_ = 0;
};

}  // namespace tidepool::engine
