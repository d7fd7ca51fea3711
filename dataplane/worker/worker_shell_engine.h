// Loads a model into an engine, as the options say.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "dataplane/engine/engine_core.h"
#include "dataplane/engine/kv_layout.h"
#include "dataplane/engine/step_plan.h"
#include "dataplane/transfer/shared_memory.h"
#include "dataplane/worker/worker_options.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::worker {

struct LoadedEngine {
  transfer::SharedMemory pool;  // [layer][page][slice]
  engine::KvLayout layout;
  int32_t num_pages = 0;
  std::unique_ptr<engine::ModelRunner> runner;  // writes into `pool`
  std::unique_ptr<engine::EngineCore> core;
  // Model, limits and identity are filled in, addresses and state are not.
  ::tidepool::worker::v1::DescribeResponse description;
};

// Downloads the model if need be, reads and packs its weights; `progress` is
// told, from 0 to 1. Blocks, for long. Errors: those of the model, naming the
// file and field; kInvalidArgument naming the option that does not fit it.
StatusOr<LoadedEngine> LoadEngine(const WorkerOptions& options,
                                  std::stop_token stop,
                                  const std::function<void(float)>& progress);

// Bytes of KV memory to take when none are stated.
uint64_t DefaultKvMemory(uint64_t wanted_bytes, uint64_t available_bytes);

}  // namespace tidepool::worker
