// What a worker can be told, as flags, YAML keys and Helm values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/base/log.h"
#include "dataplane/base/status.h"

namespace tidepool::worker {

struct WorkerOptions {
  std::string model = "demo";
  std::string served_model_name;  // "" takes the model's own
  std::string role = "decode";
  std::string host = "127.0.0.1";
  // What other processes connect to; "" is `host`.
  std::string advertise_host;
  int64_t port = 0;           // of the control address; 0 takes a free one
  int64_t transfer_port = 0;  // of the messenger
  int64_t metrics_port = -1;  // -1: none

  std::string dtype = "auto";
  std::string isa = "auto";
  std::string load_format = "auto";
  std::string download_dir;
  int64_t seed = 0;  // of dummy weights
  int64_t threads = 0;

  int64_t max_model_len = 0;  // 0: the model's, if the memory suffices
  int64_t max_num_seqs = 256;
  int64_t max_num_batched_tokens = 2048;
  int64_t block_size = 64;
  int64_t page_size = 64;
  uint64_t kv_cache_memory = 0;  // bytes; 0: derived

  std::string transport = "auto";
  std::string ready_file;
  double drain_timeout_seconds = 30;
  LogOptions log;
};

// nullopt if the answer to the arguments was printed (--help, --version…).
// Errors: kInvalidArgument naming flag or key and why; kNotFound (--config).
StatusOr<std::optional<WorkerOptions>> ParseWorkerOptions(
    int argc, const char* const* argv);

}  // namespace tidepool::worker
