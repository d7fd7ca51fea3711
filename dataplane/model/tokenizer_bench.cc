// Encoding and decoding speed. TIDEPOOL_TOKENIZER and TIDEPOOL_TEXT name other
// files than models/demo's tokenizer and the licence.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "dataplane/base/check.h"
#include "dataplane/model/detokenizer.h"
#include "dataplane/model/tokenizer.h"

namespace tidepool::model {
namespace {

std::string FileOr(const char* variable, const char* fallback) {
  const char* path = std::getenv(variable);
  std::ifstream file(
      path != nullptr ? path : std::string(TIDEPOOL_SOURCE_DIR) + fallback);
  CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::string& Json() {
  static const std::string json =
      FileOr("TIDEPOOL_TOKENIZER", "/models/demo/tokenizer.json");
  return json;
}

const std::string& Text() {
  static const std::string text = FileOr("TIDEPOOL_TEXT", "/LICENSE");
  return text;
}

std::unique_ptr<Tokenizer> NewTokenizer() {
  auto tokenizer = Tokenizer::Parse(Json());
  CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

const Tokenizer& SharedTokenizer() {
  static const auto tokenizer = NewTokenizer();
  return *tokenizer;
}

void SetBytes(benchmark::State& state, size_t bytes_each) {
  state.SetBytesProcessed(static_cast<int64_t>(bytes_each) *
                          static_cast<int64_t>(state.iterations()));
}

void BM_Parse(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(NewTokenizer());
  SetBytes(state, Json().size());
}
BENCHMARK(BM_Parse)->Unit(benchmark::kMillisecond);

// The first text of a process: the cache of words is empty.
void BM_EncodeCold(benchmark::State& state) {
  for (auto _ : state) {
    state.PauseTiming();
    auto tokenizer = NewTokenizer();
    state.ResumeTiming();
    benchmark::DoNotOptimize(tokenizer->Encode(Text()));
    state.PauseTiming();
    tokenizer.reset();
    state.ResumeTiming();
  }
  SetBytes(state, Text().size());
}
BENCHMARK(BM_EncodeCold)->Unit(benchmark::kMillisecond)->Iterations(5);

void BM_EncodeWarm(benchmark::State& state) {
  benchmark::DoNotOptimize(SharedTokenizer().Encode(Text()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(SharedTokenizer().Encode(Text()));
  }
  SetBytes(state, Text().size());
}
BENCHMARK(BM_EncodeWarm)->Unit(benchmark::kMillisecond);

// One word as long as the text: what an adversary would send.
void BM_EncodeLongWord(benchmark::State& state) {
  const std::string text(static_cast<size_t>(state.range(0)), 'a');
  for (auto _ : state) {
    benchmark::DoNotOptimize(SharedTokenizer().Encode(text));
  }
  SetBytes(state, text.size());
}
BENCHMARK(BM_EncodeLongWord)
    ->Arg(1 << 10)
    ->Arg(1 << 20)
    ->Unit(benchmark::kMillisecond);

void BM_Decode(benchmark::State& state) {
  const auto ids = SharedTokenizer().Encode(Text());
  for (auto _ : state) {
    benchmark::DoNotOptimize(SharedTokenizer().Decode(*ids, true));
  }
  SetBytes(state, Text().size());
}
BENCHMARK(BM_Decode)->Unit(benchmark::kMillisecond);

void BM_DecodeIncrementally(benchmark::State& state) {
  const auto ids = SharedTokenizer().Encode(Text());
  for (auto _ : state) {
    IncrementalDetokenizer detokenizer(SharedTokenizer(), true);
    for (const int32_t id : *ids) {
      benchmark::DoNotOptimize(detokenizer.Append(id));
    }
    benchmark::DoNotOptimize(detokenizer.Finish());
  }
  SetBytes(state, Text().size());
  state.counters["tokens"] =
      benchmark::Counter(static_cast<double>(ids->size()),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_DecodeIncrementally)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidepool::model

BENCHMARK_MAIN();
