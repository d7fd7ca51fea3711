#include "dataplane/base/serving_options.h"

#include <limits>

namespace tidepool {

namespace {
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
}  // namespace

void AddModelOptions(OptionSet& set, ModelOptions& options) {
  set.AddString("model", options.model, "a folder, hf:ORG/NAME[@REV], or demo");
  set.AddString("download-dir", options.download_dir,
                "where hub models are kept");
  set.AddInt("max-model-len", options.max_model_len, {0, 1 << 24},
             "tokens of prompt and output together; 0 takes what the model "
             "and the KV memory allow");
}

void AddEngineOptions(OptionSet& set, EngineOptions& options) {
  set.AddChoice("engine", options.engine, {"cpu", "emulated"},
                "what computes; emulated takes the time that --perf-model "
                "says and makes tokens up");
  set.AddString("perf-model", options.perf_model,
                "file that states an engine's performance, for --engine "
                "emulated");
  set.AddChoice("dtype", options.dtype, {"auto", "float32", "bfloat16"},
                "compute mode; auto takes float32 for models stored so, else "
                "bfloat16");
  set.AddChoice("isa", options.isa, {"auto", "portable", "avx2", "avx512bf16"},
                "instruction set; auto takes the fastest this processor has");
  set.AddChoice("load-format", options.load_format, {"auto", "dummy"},
                "dummy makes seeded weights of the model's configuration");
  set.AddInt("seed", options.seed, {0, kInt64Max}, "of dummy weights");
  set.AddInt("threads", options.threads, {0, 1024},
             "threads that compute in each worker; 0 shares out this "
             "machine's processors");
  set.AddInt("max-num-seqs", options.max_num_seqs, {1, 4096},
             "sequences that run at once, per worker");
  set.AddInt("max-num-batched-tokens", options.max_num_batched_tokens,
             {1, 1 << 20}, "tokens of one step, per worker");
  set.AddInt("block-size", options.block_size, {16, 4096},
             "tokens per unit of prefix reuse; a multiple of --page-size");
  set.AddInt("page-size", options.page_size, {16, 64},
             "tokens per page of KV memory: 16, 32 or 64");
  set.AddBytes("kv-cache-memory", options.kv_cache_memory, {0, kInt64Max},
               "KV memory of each worker; 0 takes what --max-num-seqs can "
               "use, at most a quarter of the memory available");
  set.AddChoice("transport", options.transport, {"auto", "tcp", "shm"},
                "how to send KV; auto takes shm on the same host, else tcp");
}

Status Validate(const EngineOptions& options) {
  const bool emulated = options.engine == "emulated";
  if (emulated && options.perf_model.empty())
    return InvalidArgument("--perf-model: is needed with --engine emulated");
  if (!emulated && !options.perf_model.empty())
    return InvalidArgument("--perf-model: is for --engine emulated only");
  if (emulated && options.kv_cache_memory > 0)
    return InvalidArgument(
        "--kv-cache-memory: is not for --engine emulated, whose memory is "
        "kv_capacity_tokens of --perf-model");
  if (options.page_size != 16 && options.page_size != 32 &&
      options.page_size != 64)
    return InvalidArgument("--page-size: {} is not 16, 32 or 64",
                           options.page_size);
  if (options.block_size % options.page_size != 0)
    return InvalidArgument(
        "--block-size: {} is not a multiple of --page-size {}",
        options.block_size, options.page_size);
  if (options.max_num_batched_tokens < options.max_num_seqs)
    return InvalidArgument(
        "--max-num-batched-tokens: {} is less than --max-num-seqs {}, so that "
        "a full batch could not decode",
        options.max_num_batched_tokens, options.max_num_seqs);
  return OkStatus();
}

void AddEdgeOptions(OptionSet& set, EdgeOptions& options) {
  set.AddString("host", options.host,
                "address to listen on; :: is all, of IPv6 and IPv4");
  set.AddInt("port", options.port, {0, 65535}, "0 takes a free one");
  set.AddStrings("served-model-name", options.served_model_names,
                 "names that requests may use, the first also in metrics; by "
                 "default the model's");
  set.AddStrings("api-key", options.api_keys,
                 "key that clients must present as a bearer token");
  set.AddString("api-key-file", options.api_key_file,
                "file of such keys, one a line");
  set.AddBool("no-auth", options.no_auth,
              "serve beyond loopback without API keys");
}

void AddProcessOptions(OptionSet& set, ProcessOptions& options) {
  set.AddString("ready-file", options.ready_file,
                "written, as JSON with the address, once it can be reached");
  set.AddInt("drain-timeout", options.drain_timeout_s, {0, 24 * 3600},
             "seconds that running requests get to end after SIGTERM");
  set.AddChoice("log-level", options.log.level,
                {"trace", "debug", "info", "warning", "error", "off"},
                "least severe message to log");
  set.AddChoice("log-format", options.log.format, {"text", "json"},
                "how a log line looks");
}

}  // namespace tidepool
