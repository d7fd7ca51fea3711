#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "dataplane/base/config.h"
#include "dataplane/base/serving_options.h"
#include "dataplane/cli/commands.h"
#include "dataplane/cli/fleet.h"

namespace tidepool::cli {
namespace {

struct ServeConfig : ModelOptions, EngineOptions, EdgeOptions, ProcessOptions {
  int64_t prefill = 1, decode = 1;
  bool elastic = false;
  int64_t ttft_slo_ms = 0, tbt_slo_ms = 0;  // 0: not stated
  int64_t stabilization_s = 60;
};

void AddOptions(OptionSet& set, ServeConfig& config) {
  set.AddInt("prefill", config.prefill, {0, 64},
             "prefill workers; 0: decode workers do both");
  set.AddInt("decode", config.decode, {1, 64}, "decode workers");
  set.AddBool("elastic", config.elastic,
              "workers change between prefill and decode as the load does; "
              "needs three of them, one of each role");
  set.AddInt("ttft-slo-ms", config.ttft_slo_ms, {0, 3'600'000},
             "with --elastic: time to the first token to keep, at the 95th "
             "percentile; 0: none is stated");
  set.AddInt("tbt-slo-ms", config.tbt_slo_ms, {0, 600'000},
             "with --elastic: time between tokens to keep, at the 95th "
             "percentile; 0: none is stated");
  set.AddInt("rebalance-stabilization", config.stabilization_s, {1, 3600},
             "with --elastic: seconds that a pressure lasts before a worker "
             "changes its role");
  AddModelOptions(set, config);
  AddEdgeOptions(set, config);
  AddEngineOptions(set, config);
  AddProcessOptions(set, config);
}

// What the children are told; where they listen and the files they write, the
// fleet tells each by flags, which win.
std::string WorkerConfig(const OptionSet& set, ServeConfig& config) {
  OptionSet worker("tidepool-worker", "");
  AddModelOptions(worker, config);
  AddEngineOptions(worker, config);
  AddProcessOptions(worker, config);
  return set.ConfigFor(worker);
}

std::string ConductorConfig(const OptionSet& set, ServeConfig& config) {
  OptionSet conductor("tidepool-conductor", "");
  AddModelOptions(conductor, config);
  AddEdgeOptions(conductor, config);
  AddProcessOptions(conductor, config);
  return set.ConfigFor(conductor);
}

int64_t ThreadsPerWorker(const ServeConfig& config) {
  if (config.threads > 0) return config.threads;
  const int64_t cores = std::thread::hardware_concurrency();
  return std::max<int64_t>(1, cores / (config.prefill + config.decode));
}

// Nullopt without --elastic.
StatusOr<std::optional<ElasticConfig>> ElasticFrom(const ServeConfig& config) {
  if (!config.elastic) {
    const char* idle = config.ttft_slo_ms > 0  ? "ttft-slo-ms"
                       : config.tbt_slo_ms > 0 ? "tbt-slo-ms"
                       : config.stabilization_s != ServeConfig().stabilization_s
                           ? "rebalance-stabilization"
                           : nullptr;
    if (idle != nullptr)
      return InvalidArgument("--{}: nothing follows it without --elastic",
                             idle);
    return std::optional<ElasticConfig>();
  }
  if (config.prefill < 1 || config.prefill + config.decode < 3)
    return InvalidArgument(
        "--elastic: of {} prefill and {} decode workers none can ever change "
        "its role; it takes three, one of each role (--prefill, --decode)",
        config.prefill, config.decode);
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  return std::optional<ElasticConfig>(
      {.ttft_slo = milliseconds(config.ttft_slo_ms),
       .tbt_slo = milliseconds(config.tbt_slo_ms),
       .stabilization = seconds(config.stabilization_s),
       .drain_timeout = seconds(config.drain_timeout_s)});
}

}  // namespace

StatusOr<int> Serve(int argc, const char* const* argv) {
  ServeConfig config;
  OptionSet set("tidepool serve",
                "A whole fleet on this machine: a conductor, prefill and "
                "decode workers.");
  AddOptions(set, config);
  ASSIGN_OR_RETURN(const OptionSet::Outcome outcome, set.Parse(argc, argv));
  if (outcome == OptionSet::Outcome::kExit) return 0;
  RETURN_IF_ERROR(Validate(config));
  ASSIGN_OR_RETURN(const std::optional<ElasticConfig> elastic,
                   ElasticFrom(config));
  config.threads = ThreadsPerWorker(config);
  RETURN_IF_ERROR(RunFleet({.prefill = config.prefill,
                            .decode = config.decode,
                            .host = config.host,
                            .port = config.port,
                            .model_name = config.served_model_names.empty()
                                              ? config.model
                                              : config.served_model_names[0],
                            .worker_config = WorkerConfig(set, config),
                            .conductor_config = ConductorConfig(set, config),
                            .drain_timeout_s = config.drain_timeout_s,
                            .elastic = elastic,
                            .ready_file = config.ready_file}));
  return 0;
}

}  // namespace tidepool::cli
