#include <algorithm>
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
};

void AddOptions(OptionSet& set, ServeConfig& config) {
  set.AddInt("prefill", config.prefill, {0, 64},
             "prefill workers; 0: decode workers do both");
  set.AddInt("decode", config.decode, {1, 64}, "decode workers");
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
                            .ready_file = config.ready_file}));
  return 0;
}

}  // namespace tidepool::cli
