// What the gateway counts and measures, as Prometheus text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dataplane/base/clock.h"
#include "dataplane/conductor/backend.h"
#include "dataplane/conductor/latency_window.h"

namespace tidepool::conductor {

struct HttpServerStats;

// What went through this gateway.
struct ServingReport {
  // Since the start: requests for completions that were answered, and of these
  // the ones answered 429 or 503.
  uint64_t requests_total = 0, rejected_total = 0;
  uint64_t prompt_tokens_total = 0, cached_prompt_tokens_total = 0;
  uint64_t output_tokens_total = 0;
  // Of the last minute.
  LatencyQuantiles ttft, tbt;
};

// Names are `tidepool_*`, and the `vllm:` names that existing boards read show
// the same figures again. Every label is from a closed set but `model_name`
// (one value) and `worker` (one for each configured worker). Thread-safe.
class GatewayMetrics {
 public:
  // Where a request came in; a label.
  enum class Endpoint {
    kCompletions,
    kChatCompletions,
    kModels,
    kTokenize,
    kDetokenize,
    kOther,
  };
  // How a choice ended; a label.
  enum class Outcome { kStop, kLength, kAbort, kError };

  explicit GatewayMetrics(std::string model_name);
  ~GatewayMetrics();

  // `status` is what the client got; 499 if it left first.
  void CountRequest(Endpoint endpoint, int status);
  void CountChoice(Outcome outcome);
  void CountPrompt(int64_t prompt_tokens, int64_t cached_tokens);
  void CountGenerated(int64_t tokens);
  // A stream that continued on another worker after its first token.
  void CountMigration();

  // From the arrival of the request.
  void ObserveTtft(Duration time, TimePoint now);
  void ObserveEndToEnd(Duration time);
  // `tokens` came `time` after those before them.
  void ObserveTbt(Duration time, int64_t tokens, TimePoint now);

  // Choices without and with a first token.
  void AddWaiting(int64_t delta);
  void AddRunning(int64_t delta);

  ServingReport Report(TimePoint now) const;
  // The text format, version 0.0.4.
  std::string Render(const FleetSnapshot& fleet,
                     const HttpServerStats& http) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::conductor
