// How close the engine comes to what the machine could do: products against a
// loop of dot products on registers, decoding against reading memory.
//
// Machines that run other things too are not equally fast for long, so each
// iteration measures its ceiling beside the work; `of_ceiling` is the median
// of these ratios.
//
// Run with --smoke for small sizes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>
#include <vector>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"
#include "dataplane/base/clock.h"
#include "dataplane/engine/cpu_runner.h"
#include "dataplane/engine/engine_bench_ceilings.h"
#include "dataplane/engine/kernels.h"
#include "dataplane/engine/packed_weights.h"
#include "dataplane/engine/thread_pool.h"

namespace tidepool::engine {
namespace {

using internal::Array;
using internal::Epilogue;
using internal::kGemmRowsMax;

bool smoke = false;

double WallSeconds() {
  return Seconds(Clock::Monotonic().Now().time_since_epoch()).count();
}

// Of this thread: what it computes alone is timed without what others on the
// machine take.
double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + values.size() / 2);
  return values[values.size() / 2];
}

// Times work against a ceiling, side by side.
class Comparison {
 public:
  explicit Comparison(double (*now)()) : now_(now) {}

  template <typename Work, typename Ceiling>
  void Iterate(benchmark::State& state, const Work& work,
               const Ceiling& ceiling) {
    const double start = now_();
    ceiling();
    const double middle = now_();
    work();
    ceiling_.push_back(middle - start);
    work_.push_back(now_() - middle);
    state.SetIterationTime(work_.back());
  }

  // Both in units (operations, bytes) of the same kind.
  void Report(benchmark::State& state, double work_units,
              double ceiling_units) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < work_.size(); ++i)
      ratios.push_back(work_units / work_[i] * ceiling_[i] / ceiling_units);
    state.counters["ms_median"] = Median(work_) * 1e3;
    state.counters["ms_best"] = *std::ranges::min_element(work_) * 1e3;
    state.counters["G_per_s"] = work_units / Median(work_) / 1e9;
    state.counters["ceiling_G_per_s"] = ceiling_units / Median(ceiling_) / 1e9;
    if (ceiling_units > 0) {
      state.counters["of_ceiling"] = Median(ratios);
      state.counters["of_ceiling_best"] =
          work_units / *std::ranges::min_element(work_) *
          *std::ranges::min_element(ceiling_) / ceiling_units;
    }
  }

 private:
  double (*const now_)();  // seconds
  std::vector<double> work_, ceiling_;
};

// One thread's product of M rows with an [N, K] matrix in bfloat16. As in a
// model, no product finds its weights in a cache.
class GemmBench {
 public:
  GemmBench(int32_t rows, int64_t outputs, int64_t inputs, Epilogue epilogue)
      : rows_(rows), outputs_(outputs), epilogue_(epilogue) {
    const auto mode = ComputeMode::kBFloat16;
    const int64_t bytes = outputs * inputs * 2;
    const int64_t copies = smoke ? 1 : CeilDiv<int64_t>(128 << 20, bytes);
    for (int64_t i = 0; i < copies; ++i) {
      auto matrix = internal::PackedMatrix::Create(mode, outputs, inputs);
      CHECK(matrix.ok());
      // Zeros multiply like other numbers, but there must be memory.
      std::memset(const_cast<internal::Unit*>(matrix->data()), 0,
                  static_cast<size_t>(bytes));
      matrices_.push_back(*std::move(matrix));
    }
    units_ = matrices_[0].units();
    a_stride_ = (units_ / 16 | 1) * 16;
    a_ = MakeArray(rows * a_stride_ * 4);
    out_ = MakeArray(rows * outputs * 4);
    scratch_ = MakeArray(kGemmRowsMax * internal::kGroupOutputs * 4);
  }

  void Run() {
    const internal::PackedMatrix& matrix =
        matrices_[next_++ % matrices_.size()];
    const int32_t blocks = CeilDiv(rows_, kGemmRowsMax);
    const int32_t block_rows = CeilDiv(CeilDiv(rows_, blocks), 6) * 6;
    for (int32_t row = 0; row < rows_; row += block_rows) {
      kernels_.gemm({.a = a_.As<internal::Unit>() + row * a_stride_,
                     .a_stride = a_stride_,
                     .rows = std::min(block_rows, rows_ - row),
                     .weights = matrix.data(),
                     .units = units_,
                     .group_begin = 0,
                     .group_end = matrix.groups(),
                     .epilogue = epilogue_,
                     .bias = nullptr,
                     .out = out_.As<float>() + row * outputs_,
                     .out_stride = outputs_,
                     .outputs = outputs_,
                     .scratch = scratch_.As<float>()});
    }
  }

 private:
  static Array MakeArray(int64_t bytes) {
    auto array = Array::Create(bytes);
    CHECK(array.ok());
    std::memset(array->As<std::byte>(), 0, static_cast<size_t>(bytes));
    return *std::move(array);
  }

  const internal::KernelTable& kernels_ =
      internal::KernelsFor(ComputeMode::kBFloat16, SupportedIsas().back());
  const int32_t rows_;
  const int64_t outputs_;
  const Epilogue epilogue_;
  std::vector<internal::PackedMatrix> matrices_;
  int32_t units_ = 0;
  int64_t a_stride_ = 0;
  Array a_, out_, scratch_;
  size_t next_ = 0;
};

// The products of Qwen2.5-0.5B: gate and up, down, qkv, attention output.
void BM_Gemm(benchmark::State& state) {
  const int64_t rows = state.range(0), outputs = state.range(1),
                inputs = state.range(2);
  if (smoke && rows * outputs * inputs > int64_t{100} << 20) {
    state.SkipWithError("not in a smoke run");
    return;
  }
  GemmBench gemm(static_cast<int32_t>(rows), outputs, inputs,
                 outputs == 9728  ? Epilogue::kSwiGlu
                 : outputs == 896 ? Epilogue::kAdd
                                  : Epilogue::kStore);
  constexpr int64_t kRounds = 40'000;
  Comparison comparison(ThreadSeconds);
  for (auto _ : state) {
    comparison.Iterate(
        state, [&] { gemm.Run(); }, [&] { RunDots(kRounds); });
  }
  comparison.Report(state, 2.0 * static_cast<double>(rows * outputs * inputs),
                    static_cast<double>(DotFlops(kRounds)));
}
BENCHMARK(BM_Gemm)
    ->ArgNames({"M", "N", "K"})
    ->ArgsProduct({{512, 64, 16}, {9728}, {896}})
    ->ArgsProduct({{512, 64, 16}, {896}, {4864}})
    ->ArgsProduct({{512, 64, 16}, {1152, 896}, {896}})
    ->UseManualTime();

model::ModelConfig BenchModel() {
  if (smoke) {
    return {.architecture = model::Architecture::kQwen2,
            .vocab_size = 2048,
            .hidden_size = 128,
            .intermediate_size = 256,
            .num_layers = 2,
            .num_heads = 4,
            .num_kv_heads = 2,
            .head_dim = 32,
            .max_position_embeddings = 4096,
            .tie_word_embeddings = true,
            .attention_qkv_bias = true};
  }
  return {.architecture = model::Architecture::kQwen2,  // Qwen2.5-0.5B
          .vocab_size = 151936,
          .hidden_size = 896,
          .intermediate_size = 4864,
          .num_layers = 24,
          .num_heads = 14,
          .num_kv_heads = 2,
          .head_dim = 64,
          .max_position_embeddings = 32768,
          .rope_theta = 1e6,
          .tie_word_embeddings = true,
          .attention_qkv_bias = true};
}

int64_t WeightBytes(const model::ModelConfig& config) {
  int64_t bytes = 0;
  for (const model::TensorSpec& tensor : model::TensorsOf(config)) {
    int64_t size = 2;
    for (const int64_t dimension : tensor.shape) size *= dimension;
    bytes += size;
  }
  return bytes;
}

// A model with one sequence.
class BenchRunner {
 public:
  explicit BenchRunner(int32_t threads) : config_(BenchModel()) {
    constexpr int32_t kPageTokens = 64, kTokens = 4096;
    const int64_t bytes =
        KvLayoutFor(config_, ComputeMode::kBFloat16, kPageTokens).page_bytes() *
        (kTokens / kPageTokens);
    auto pool = Array::Create(bytes);
    CHECK(pool.ok());
    pool_ = *std::move(pool);
    const auto source = model::MakeDummyWeights(config_, 1);
    auto runner = CreateCpuRunner(
        config_, *source,
        {.mode = ComputeMode::kBFloat16,
         .threads = threads,
         .kv_pool = {pool_.As<std::byte>(), static_cast<size_t>(bytes)},
         .num_pages = kTokens / kPageTokens,
         .page_tokens = kPageTokens,
         .max_model_len = kTokens});
    CHECK(runner.ok());
    runner_ = *std::move(runner);
    for (int32_t i = 0; i < kTokens; ++i) context_.push_back(i % 1000);
    for (PageId page = 0; page < kTokens / kPageTokens; ++page)
      pages_.push_back(page);
    sampling_.temperature = 0;
  }

  void Run(int32_t begin, int32_t end) {
    plan_.sequences = {
        {.sequence = 1,
         .context = std::span(context_).first(static_cast<size_t>(end)),
         .prompt_tokens = end,
         .begin = begin,
         .end = end,
         .pages = pages_,
         .sample = true,
         .sampling = &sampling_}};
    CHECK(runner_->Execute(plan_, nullptr, result_).ok());
  }

  const model::ModelConfig& config() const { return config_; }

 private:
  const model::ModelConfig config_;
  Array pool_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<int32_t> context_;
  std::vector<PageId> pages_;
  SamplingParams sampling_;
  StepPlan plan_;
  StepResult result_;
};

// One token after `context` others: all weights are read once.
void BM_Decode(benchmark::State& state) {
  const auto threads = static_cast<int32_t>(state.range(0));
  const auto context = static_cast<int32_t>(state.range(1));
  BenchRunner runner(threads);
  const auto pool = ThreadPool::Create(threads);
  CHECK(pool.ok());
  const int64_t read_bytes = smoke ? 4 << 20 : 512 << 20;
  auto memory = Array::Create(read_bytes);
  CHECK(memory.ok());
  std::memset(memory->As<std::byte>(), 1, read_bytes);
  runner.Run(0, 512);
  Comparison comparison(threads == 1 ? ThreadSeconds : WallSeconds);
  for (auto _ : state) {
    comparison.Iterate(
        state, [&] { runner.Run(context, context + 1); },
        [&] { ReadMemory(memory->As<std::byte>(), read_bytes, **pool); });
  }
  comparison.Report(state, static_cast<double>(WeightBytes(runner.config())),
                    static_cast<double>(read_bytes));
}
BENCHMARK(BM_Decode)
    ->ArgNames({"threads", "context"})
    ->ArgsProduct({{1, 2}, {64, 511}})
    ->UseManualTime();

// A prompt of 512 tokens.
void BM_Prefill(benchmark::State& state) {
  const auto threads = static_cast<int32_t>(state.range(0));
  constexpr int32_t kTokens = 512;
  BenchRunner runner(threads);
  const auto pool = ThreadPool::Create(threads);
  CHECK(pool.ok());
  const int64_t rounds = smoke ? 1000 : 50'000'000;
  Comparison comparison(threads == 1 ? ThreadSeconds : WallSeconds);
  for (auto _ : state) {
    comparison.Iterate(
        state, [&] { runner.Run(0, kTokens); },
        [&] {
          (*pool)->For(threads, 0, [&](int64_t begin, int64_t end, int32_t) {
            RunDots((end - begin) * rounds);
          });
        });
  }
  const model::ModelConfig& config = runner.config();
  // Of the projections alone; the output matrix sees one row.
  const double flops =
      static_cast<double>(WeightBytes(config) -
                          2 * config.vocab_size * config.hidden_size) *
      kTokens;
  comparison.Report(state, flops,
                    static_cast<double>(DotFlops(rounds) * threads));
}
BENCHMARK(BM_Prefill)->ArgNames({"threads"})->Arg(1)->Arg(2)->UseManualTime();

}  // namespace
}  // namespace tidepool::engine

int main(int argc, char** argv) {
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--smoke") {
      tidepool::engine::smoke = true;
    } else {
      rest.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
