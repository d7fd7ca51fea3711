#include "dataplane/worker/worker_options.h"

#include <limits>

#include "dataplane/base/config.h"

namespace tidepool::worker {
namespace {

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

void AddServing(OptionSet& set, WorkerOptions& options) {
  set.AddString("model", options.model, "a folder, hf:ORG/NAME[@REV], or demo");
  set.AddString("served-model-name", options.served_model_name,
                "the name clients use; by default the model's");
  set.AddChoice("role", options.role, {"prefill", "decode"},
                "decode also serves whole requests alone");
  set.AddString("host", options.host, "address to listen on");
  set.AddString("advertise-host", options.advertise_host,
                "address others reach this worker at; by default --host");
  set.AddInt("port", options.port, {0, 65535},
             "port of the control service; 0 takes a free one");
  set.AddInt("transfer-port", options.transfer_port, {0, 65535},
             "port that KV is sent to; 0 takes a free one");
  set.AddInt("metrics-port", options.metrics_port, {-1, 65535},
             "port of /metrics; 0 takes a free one, -1 serves none");
  set.AddChoice("transport", options.transport, {"auto", "tcp", "shm"},
                "how to send KV; auto takes shm on the same host, else tcp");
  set.AddString("ready-file", options.ready_file,
                "written, as lines of JSON, once the ports listen");
  set.AddDouble("drain-timeout", options.drain_timeout_seconds, {0, 86400},
                "seconds that requests get to end after SIGTERM");
  set.AddChoice("log-level", options.log.level,
                {"trace", "debug", "info", "warning", "error"},
                "least severe message to log");
  set.AddChoice("log-format", options.log.format, {"text", "json"},
                "how a log line looks");
}

void AddEngine(OptionSet& set, WorkerOptions& options) {
  set.AddChoice("dtype", options.dtype, {"auto", "float32", "bfloat16"},
                "compute mode; auto takes float32 for models stored so, else "
                "bfloat16");
  set.AddChoice("isa", options.isa, {"auto", "portable", "avx2", "avx512bf16"},
                "instruction set; auto takes the fastest this processor has");
  set.AddChoice("load-format", options.load_format, {"auto", "dummy"},
                "dummy makes seeded weights of the model's configuration");
  set.AddInt("seed", options.seed, {0, kMaxInt64}, "of dummy weights");
  set.AddString("download-dir", options.download_dir,
                "where hub models are kept");
  set.AddInt("threads", options.threads, {0, 1024},
             "threads that compute; 0 takes one per processor");
  set.AddInt("max-model-len", options.max_model_len, {0, 1 << 24},
             "tokens of prompt and output together; 0 takes what the model "
             "and the KV memory allow");
  set.AddInt("max-num-seqs", options.max_num_seqs, {1, 4096},
             "sequences that run at once");
  set.AddInt("max-num-batched-tokens", options.max_num_batched_tokens,
             {1, 1 << 20}, "tokens of one step");
  set.AddInt("block-size", options.block_size, {16, 4096},
             "tokens per unit of prefix reuse; a multiple of --page-size");
  set.AddInt("page-size", options.page_size, {16, 64},
             "tokens per page of KV memory: 16, 32 or 64");
  set.AddBytes("kv-cache-memory", options.kv_cache_memory, {0, kMaxInt64},
               "KV memory; 0 takes what --max-num-seqs can use, at most a "
               "quarter of the memory available");
}

Status Validate(const WorkerOptions& options) {
  if (options.model.empty()) return InvalidArgument("--model: is empty");
  if (options.page_size != 16 && options.page_size != 32 &&
      options.page_size != 64)
    return InvalidArgument("--page-size: {} is not 16, 32 or 64",
                           options.page_size);
  if (options.block_size % options.page_size != 0)
    return InvalidArgument(
        "--block-size: {} is not a multiple of --page-size "
        "{}",
        options.block_size, options.page_size);
  if (options.max_num_batched_tokens < options.max_num_seqs)
    return InvalidArgument(
        "--max-num-batched-tokens: {} is less than --max-num-seqs {}, so that "
        "a full batch could not decode",
        options.max_num_batched_tokens, options.max_num_seqs);
  const bool wildcard = options.host == "0.0.0.0" || options.host == "::" ||
                        options.host == "[::]";
  if (wildcard && options.advertise_host.empty())
    return InvalidArgument(
        "--advertise-host: must say how others reach this worker when --host "
        "is {}",
        options.host);
  return OkStatus();
}

}  // namespace

StatusOr<std::optional<WorkerOptions>> ParseWorkerOptions(
    int argc, const char* const* argv) {
  WorkerOptions options;
  OptionSet set("tidepool-worker",
                "One engine process: prefills prompts, or decodes.");
  AddServing(set, options);
  AddEngine(set, options);
  ASSIGN_OR_RETURN(const OptionSet::Outcome outcome, set.Parse(argc, argv));
  if (outcome == OptionSet::Outcome::kExit) return std::nullopt;
  RETURN_IF_ERROR(Validate(options));
  if (options.advertise_host.empty()) options.advertise_host = options.host;
  return options;
}

}  // namespace tidepool::worker
