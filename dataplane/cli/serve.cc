#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/base/config.h"
#include "dataplane/cli/commands.h"
#include "dataplane/cli/fleet.h"

namespace tidepool::cli {
namespace {

// Options that `serve` passes on; those left out keep the binaries' defaults.
struct ServeConfig {
  std::string model = "demo", dtype = "auto", load_format = "auto",
              transport = "auto", log_level = "info", log_format = "text",
              download_dir, api_key_file;
  std::vector<std::string> served_model_names, api_keys;
  int64_t threads = 0, max_model_len = 0, max_num_seqs = 64, block_size = 64,
          page_size = 64, max_num_batched_tokens = 512;
  uint64_t kv_cache_memory = 0;
  bool no_auth = false;
  FleetConfig fleet;
};

void AddOptions(OptionSet& options, ServeConfig& config) {
  FleetConfig& fleet = config.fleet;
  options.AddString("model", config.model,
                    "folder, hf:ORG/NAME[@REV], or demo");
  options.AddStrings("served-model-name", config.served_model_names,
                     "names that requests may use; default --model");
  options.AddInt("prefill", fleet.prefill, {0, 64},
                 "prefill workers; 0: decode workers do both");
  options.AddInt("decode", fleet.decode, {1, 64}, "decode workers");
  options.AddString("host", fleet.host, "address to listen on");
  options.AddInt("port", fleet.port, {0, 65535}, "0 takes a free one");
  options.AddStrings("api-key", config.api_keys, "accepted API keys");
  options.AddString("api-key-file", config.api_key_file,
                    "file of accepted API keys, one a line");
  options.AddBool("no-auth", config.no_auth,
                  "listen beyond loopback without API keys");
  options.AddChoice("dtype", config.dtype, {"auto", "float32", "bfloat16"},
                    "arithmetic; auto follows the model");
  options.AddChoice("load-format", config.load_format, {"auto", "dummy"},
                    "dummy: seeded weights instead of files");
  options.AddString("download-dir", config.download_dir,
                    "cache of downloaded models");
  options.AddInt("threads", config.threads, {0, 1024},
                 "per worker; 0 divides this machine's cores");
  options.AddInt("max-model-len", config.max_model_len, {0, 1 << 24},
                 "longest context; 0 takes the model's");
  options.AddInt("max-num-seqs", config.max_num_seqs, {1, 4096},
                 "sequences in one batch, per worker");
  options.AddInt("max-num-batched-tokens", config.max_num_batched_tokens,
                 {1, 1 << 20}, "tokens in one iteration, per worker");
  options.AddInt("block-size", config.block_size, {16, 4096},
                 "tokens per block, the unit of prefix reuse");
  options.AddInt("page-size", config.page_size, {16, 64},
                 "tokens per page of KV memory; divides the block size");
  options.AddBytes("kv-cache-memory", config.kv_cache_memory,
                   {0, int64_t{1} << 46}, "per worker; 0 derives it");
  options.AddChoice("transport", config.transport, {"auto", "tcp", "shm"},
                    "between workers");
  options.AddInt("drain-timeout", fleet.drain_timeout_s, {0, 3600},
                 "seconds for streams to finish after SIGTERM");
  options.AddString("ready-file", fleet.ready_file,
                    "written with the URL once requests are served");
  options.AddString("log-level", config.log_level,
                    "trace, debug, info, warning, error, off");
  options.AddChoice("log-format", config.log_format, {"text", "json"},
                    "of log lines");
}

// The options in force as flags of a child, those of `names` that were set.
class FlagWriter {
 public:
  FlagWriter(const OptionSet& options, std::vector<std::string>& flags)
      : options_(options), flags_(flags) {}

  void Add(const std::string& name, const std::string& value) {
    if (!options_.WasSet(name)) return;
    flags_.push_back("--" + name);
    flags_.push_back(value);
  }
  void Add(const std::string& name, int64_t value) {
    Add(name, std::to_string(value));
  }
  void AddAll(const std::string& name, const std::vector<std::string>& values) {
    for (const std::string& value : values) Add(name, value);
  }

 private:
  const OptionSet& options_;
  std::vector<std::string>& flags_;
};

void AddCommonFlags(const ServeConfig& config, const OptionSet& options,
                    std::vector<std::string>& flags) {
  flags.insert(flags.end(), {"--model", config.model});
  FlagWriter writer(options, flags);
  writer.Add("max-model-len", config.max_model_len);
  writer.Add("download-dir", config.download_dir);
  writer.Add("log-level", config.log_level);
  writer.Add("log-format", config.log_format);
}

void AddWorkerFlags(const ServeConfig& config, const OptionSet& options,
                    std::vector<std::string>& flags) {
  AddCommonFlags(config, options, flags);
  FlagWriter writer(options, flags);
  writer.Add("dtype", config.dtype);
  writer.Add("load-format", config.load_format);
  writer.Add("max-num-seqs", config.max_num_seqs);
  writer.Add("max-num-batched-tokens", config.max_num_batched_tokens);
  writer.Add("block-size", config.block_size);
  writer.Add("page-size", config.page_size);
  writer.Add("kv-cache-memory", static_cast<int64_t>(config.kv_cache_memory));
  writer.Add("transport", config.transport);
  const int64_t workers = config.fleet.prefill + config.fleet.decode;
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  flags.push_back("--threads");
  flags.push_back(std::to_string(config.threads > 0
                                     ? config.threads
                                     : std::max<int64_t>(1, cores / workers)));
}

void AddConductorFlags(const ServeConfig& config, const OptionSet& options,
                       std::vector<std::string>& flags) {
  AddCommonFlags(config, options, flags);
  FlagWriter writer(options, flags);
  writer.AddAll("served-model-name", config.served_model_names);
  writer.AddAll("api-key", config.api_keys);
  writer.Add("api-key-file", config.api_key_file);
  if (config.no_auth) flags.push_back("--no-auth");
}

}  // namespace

StatusOr<int> Serve(int argc, const char* const* argv) {
  ServeConfig config;
  OptionSet options("tidepool serve",
                    "A whole fleet on this machine: a conductor, prefill and "
                    "decode workers.");
  AddOptions(options, config);
  ASSIGN_OR_RETURN(const OptionSet::Outcome outcome, options.Parse(argc, argv));
  if (outcome == OptionSet::Outcome::kExit) return 0;
  if (config.block_size % config.page_size != 0)
    return InvalidArgument("--page-size: {} does not divide the block size {}",
                           config.page_size, config.block_size);
  config.fleet.model_name = config.served_model_names.empty()
                                ? config.model
                                : config.served_model_names[0];
  AddWorkerFlags(config, options, config.fleet.worker_flags);
  AddConductorFlags(config, options, config.fleet.conductor_flags);
  RETURN_IF_ERROR(RunFleet(config.fleet));
  return 0;
}

}  // namespace tidepool::cli
