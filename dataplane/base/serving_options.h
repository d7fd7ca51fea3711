// Options that several programs take (conductor, worker, `tidepool serve`),
// each declared once. A program's own structure inherits the groups it takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/config.h"
#include "dataplane/base/log.h"
#include "dataplane/base/status.h"

namespace tidepool {

// The model that a fleet serves.
struct ModelOptions {
  std::string model = "demo";  // a folder, hf:ORG/NAME[@REV], or demo
  std::string download_dir;    // "": where the hub's own tools keep models
  int64_t max_model_len = 0;   // 0: what model and KV memory allow
};
void AddModelOptions(OptionSet& set, ModelOptions& options);

// How one worker computes.
struct EngineOptions {
  std::string engine = "cpu";  // cpu or emulated
  std::string perf_model;      // file; of the emulated engine
  std::string dtype = "auto";
  std::string isa = "auto";
  std::string load_format = "auto";
  int64_t seed = 0;  // of dummy weights
  int64_t threads = 0;

  int64_t max_num_seqs = 256;
  int64_t max_num_batched_tokens = 2048;
  int64_t block_size = 64;
  int64_t page_size = 64;
  uint64_t kv_cache_memory = 0;  // bytes; 0: derived
  std::string transport = "auto";
};
void AddEngineOptions(OptionSet& set, EngineOptions& options);
// What the ranges do not say. Errors: kInvalidArgument naming the option.
Status Validate(const EngineOptions& options);

// Where clients come in.
struct EdgeOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8000;  // 0: any free one
  std::vector<std::string> served_model_names;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool no_auth = false;
};
void AddEdgeOptions(OptionSet& set, EdgeOptions& options);

// The life of a process that serves.
struct ProcessOptions {
  std::string ready_file;  // "": none
  int64_t drain_timeout_s = 30;
  LogOptions log;
};
void AddProcessOptions(OptionSet& set, ProcessOptions& options);

}  // namespace tidepool
