#include "dataplane/worker/worker_shell_engine.h"

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "dataplane/base/checked_math.h"
#include "dataplane/base/log.h"
#include "dataplane/engine/cpu_runner.h"
#include "dataplane/engine/emulated_runner.h"
#include "dataplane/engine/numerics.h"
#include "dataplane/model/config.h"
#include "dataplane/model/model_source.h"
#include "dataplane/model/weights.h"

namespace tidepool::worker {
namespace {

constexpr int64_t kMaxPages = 1 << 24;

// What the kernel thinks can be had without swapping.
uint64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  uint64_t kib;
  while (file >> name >> kib && std::getline(file, unit)) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return uint64_t{4} << 30;
}

StatusOr<std::string> FindModel(const WorkerOptions& options,
                                std::stop_token stop,
                                model::ModelSource& source) {
  ASSIGN_OR_RETURN(source, model::ParseModelSource(options.model));
  model::HubOptions hub = model::HubOptionsFromEnvironment();
  if (!options.download_dir.empty()) hub.cache_folder = options.download_dir;
  hub.weights = options.load_format != "dummy" && options.engine == "cpu";
  hub.stop = std::move(stop);
  hub.progress = [](const model::DownloadProgress& progress) {
    LOG_INFO("downloading {}: {} of {} MiB", progress.file,
             progress.bytes >> 20, progress.size >> 20);
  };
  return model::ResolveModel(source, hub);
}

// Names weights and tokenizer; a model without one is named by its weights.
Sha256Digest ModelDigest(const Sha256Digest& weights_digest,
                         const std::string& folder) {
  std::ifstream file(folder + "/tokenizer.json", std::ios::binary);
  const std::string tokenizer((std::istreambuf_iterator<char>(file)),
                              std::istreambuf_iterator<char>());
  const Sha256Digest tokenizer_digest = Sha256Of(tokenizer);
  Sha256 digest;
  digest.Update(std::as_bytes(std::span(weights_digest.bytes)));
  digest.Update(std::as_bytes(std::span(tokenizer_digest.bytes)));
  return digest.Finish();
}

StatusOr<engine::ComputeMode> ModeFor(const WorkerOptions& options,
                                      const model::ModelConfig& config) {
  if (options.dtype != "auto") return engine::ParseComputeMode(options.dtype);
  return config.dtype == model::DType::kFloat32
             ? engine::ComputeMode::kFloat32
             : engine::ComputeMode::kBFloat16;
}

struct Capacity {
  int32_t num_pages = 0;
  int32_t max_model_len = 0;
};

// What a loader is given.
struct Loading {
  const WorkerOptions& options;
  const std::string& folder;
  const model::ModelConfig& config;
  std::stop_token stop;
  const std::function<void(float)>& progress;
};

// What a loader makes.
struct Computing {
  engine::KvLayout layout;
  Capacity capacity;
  transfer::SharedMemory pool;
  std::unique_ptr<engine::ModelRunner> runner;
  std::string numerics_id;
  Sha256Digest model_digest;
};

// `kv_bytes`: of KV memory; 0 derives it.
StatusOr<Capacity> PlanCapacity(const WorkerOptions& options,
                                const model::ModelConfig& config,
                                const engine::KvLayout& layout,
                                uint64_t kv_bytes) {
  const int64_t longest = config.max_position_embeddings;
  if (options.max_model_len > longest)
    return InvalidArgument(
        "--max-model-len: {} is more than the model's max_position_embeddings "
        "{}",
        options.max_model_len, longest);
  const int64_t wanted_len =
      options.max_model_len > 0 ? options.max_model_len : longest;
  const auto page_bytes = static_cast<uint64_t>(layout.page_bytes());
  const int64_t pages_each = CeilDiv(wanted_len, int64_t{layout.page_tokens});

  uint64_t bytes = kv_bytes;
  if (bytes == 0) {
    const auto wanted = CheckedMul(
        page_bytes, static_cast<uint64_t>(pages_each * options.max_num_seqs));
    bytes =
        DefaultKvMemory(wanted.value_or(std::numeric_limits<uint64_t>::max()),
                        AvailableMemory());
  }
  const auto pages =
      static_cast<int64_t>(std::min<uint64_t>(bytes / page_bytes, kMaxPages));
  if (pages == 0)
    return InvalidArgument(
        "--kv-cache-memory: {} bytes hold no page, which takes {}", bytes,
        page_bytes);
  const int64_t held = pages * layout.page_tokens;
  if (held < wanted_len && options.max_model_len > 0)
    return InvalidArgument(
        "--kv-cache-memory: {} bytes hold {} tokens, fewer than "
        "--max-model-len {}",
        bytes, held, wanted_len);
  if (held < wanted_len)
    LOG_WARNING("context limited to {} of {} tokens by KV memory", held,
                wanted_len);
  return Capacity{
      .num_pages = static_cast<int32_t>(pages),
      .max_model_len = static_cast<int32_t>(std::min(held, wanted_len))};
}

void Describe(const WorkerOptions& options, const model::ModelSource& source,
              const model::ModelConfig& config, const Computing& computing,
              LoadedEngine& loaded) {
  auto& description = loaded.description;
  description.set_served_model(options.served_model_name.empty()
                                   ? model::DefaultModelName(source)
                                   : options.served_model_name);
  description.set_vocab_size(static_cast<uint32_t>(config.vocab_size));
  description.set_max_model_len(
      static_cast<uint32_t>(computing.capacity.max_model_len));
  description.set_max_num_seqs(static_cast<uint32_t>(options.max_num_seqs));
  for (const int32_t id : config.eos_token_ids)
    description.add_eos_token_ids(id);

  auto& identity = *description.mutable_identity();
  const auto& digest = computing.model_digest.bytes;
  identity.set_model_digest(digest.data(), digest.size());
  identity.set_numerics_id(computing.numerics_id);
  identity.set_kv_dtype(loaded.layout.element_bytes == 4 ? "float32"
                                                         : "bfloat16");
  identity.set_num_layers(static_cast<uint32_t>(loaded.layout.num_layers));
  identity.set_num_kv_heads(static_cast<uint32_t>(loaded.layout.num_kv_heads));
  identity.set_head_dim(static_cast<uint32_t>(loaded.layout.head_dim));
  identity.set_page_tokens(static_cast<uint32_t>(options.page_size));
  identity.set_block_tokens(static_cast<uint32_t>(options.block_size));
}

StatusOr<transfer::SharedMemory> MakePool(const engine::KvLayout& layout,
                                          const Capacity& capacity) {
  return transfer::SharedMemory::Create(
      "tidepool-kv", static_cast<uint64_t>(layout.page_bytes()) *
                         static_cast<uint64_t>(capacity.num_pages));
}

StatusOr<Computing> LoadCpu(const Loading& loading) {
  const WorkerOptions& options = loading.options;
  ASSIGN_OR_RETURN(const engine::ComputeMode mode,
                   ModeFor(options, loading.config));
  std::optional<engine::Isa> wanted_isa;
  if (options.isa != "auto") {
    ASSIGN_OR_RETURN(wanted_isa, engine::ParseIsa(options.isa));
  }
  ASSIGN_OR_RETURN(const engine::Isa isa, engine::ResolveIsa(wanted_isa));
  const engine::KvLayout layout = engine::KvLayoutFor(
      loading.config, mode, static_cast<int32_t>(options.page_size));
  ASSIGN_OR_RETURN(
      const Capacity capacity,
      PlanCapacity(options, loading.config, layout, options.kv_cache_memory));

  std::unique_ptr<model::WeightSource> weights;
  if (options.load_format == "dummy") {
    weights = model::MakeDummyWeights(loading.config,
                                      static_cast<uint64_t>(options.seed));
  } else {
    ASSIGN_OR_RETURN(weights, model::OpenSafetensors(loading.folder));
  }
  ASSIGN_OR_RETURN(const Sha256Digest weights_digest, weights->Digest());
  ASSIGN_OR_RETURN(transfer::SharedMemory pool, MakePool(layout, capacity));
  const int64_t threads =
      options.threads > 0
          ? options.threads
          : std::max<int64_t>(1, std::thread::hardware_concurrency());
  ASSIGN_OR_RETURN(
      auto runner,
      engine::CreateCpuRunner(
          loading.config, *weights,
          {.mode = mode,
           .threads = static_cast<int32_t>(threads),
           .isa = isa,
           .kv_pool = pool.memory(),
           .num_pages = capacity.num_pages,
           .page_tokens = layout.page_tokens,
           .max_step_tokens =
               static_cast<int32_t>(options.max_num_batched_tokens),
           .max_step_sequences = static_cast<int32_t>(options.max_num_seqs),
           .max_model_len = capacity.max_model_len,
           .load_progress = [&](int64_t done, int64_t total) {
             loading.progress(static_cast<float>(done) /
                              static_cast<float>(std::max<int64_t>(1, total)));
           }}));
  return Computing{.layout = layout,
                   .capacity = capacity,
                   .pool = std::move(pool),
                   .runner = std::move(runner),
                   .numerics_id = engine::NumericsId(mode, isa),
                   .model_digest = ModelDigest(weights_digest, loading.folder)};
}

// As long as the weights of the emulated engine would take. Errors:
// kCancelled.
Status EmulateLoad(const Loading& loading, Seconds time) {
  constexpr int kSteps = 20;
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  for (int step = 0; step < kSteps && time > Seconds(0); ++step) {
    loading.progress(static_cast<float>(step) / kSteps);
    stopped.wait_for(lock, loading.stop, time / kSteps, [] { return false; });
    if (loading.stop.stop_requested())
      return MakeError(Code::kCancelled, "loading was stopped");
  }
  return OkStatus();
}

StatusOr<Computing> LoadEmulated(const Loading& loading) {
  const WorkerOptions& options = loading.options;
  ASSIGN_OR_RETURN(const engine::PerfModel perf,
                   engine::ReadPerfModel(options.perf_model));
  const engine::KvLayout layout =
      engine::EmulatedKvLayout(static_cast<int32_t>(options.page_size));
  const int64_t token_bytes = layout.page_bytes() / layout.page_tokens;
  ASSIGN_OR_RETURN(const Capacity capacity,
                   PlanCapacity(options, loading.config, layout,
                                static_cast<uint64_t>(perf.kv_capacity_tokens *
                                                      token_bytes)));
  ASSIGN_OR_RETURN(transfer::SharedMemory pool, MakePool(layout, capacity));
  RETURN_IF_ERROR(EmulateLoad(loading, perf.load / perf.speed));
  ASSIGN_OR_RETURN(auto runner, engine::CreateEmulatedRunner(
                                    {.perf = perf,
                                     .vocab_size = loading.config.vocab_size,
                                     .eos_ids = loading.config.eos_token_ids,
                                     .kv_pool = pool.memory(),
                                     .num_pages = capacity.num_pages,
                                     .page_tokens = layout.page_tokens,
                                     .clock = &Clock::Monotonic(),
                                     .sleep_until = [](TimePoint until) {
                                       std::this_thread::sleep_until(until);
                                     }}));
  const std::string numerics_id = engine::kEmulatedNumericsId;
  return Computing{
      .layout = layout,
      .capacity = capacity,
      .pool = std::move(pool),
      .runner = std::move(runner),
      .numerics_id = numerics_id,
      .model_digest = ModelDigest(Sha256Of(numerics_id), loading.folder)};
}

StatusOr<std::unique_ptr<engine::EngineCore>> CreateCore(
    const WorkerOptions& options, const model::ModelConfig& config,
    const Computing& computing) {
  return engine::EngineCore::Create(
      {.page_tokens = computing.layout.page_tokens,
       .block_tokens = static_cast<int32_t>(options.block_size),
       .num_pages = computing.capacity.num_pages,
       .max_num_seqs = static_cast<int32_t>(options.max_num_seqs),
       .max_num_batched_tokens =
           static_cast<int32_t>(options.max_num_batched_tokens),
       .max_model_len = computing.capacity.max_model_len,
       .vocab_size = config.vocab_size,
       .eos_ids = config.eos_token_ids});
}

}  // namespace

uint64_t DefaultKvMemory(uint64_t wanted_bytes, uint64_t available_bytes) {
  return std::min(wanted_bytes, available_bytes / 4);
}

StatusOr<LoadedEngine> LoadEngine(const WorkerOptions& options,
                                  std::stop_token stop,
                                  const std::function<void(float)>& progress) {
  model::ModelSource source;
  ASSIGN_OR_RETURN(const std::string folder, FindModel(options, stop, source));
  ASSIGN_OR_RETURN(const model::ModelDescription described,
                   model::LoadModelDescription(folder));
  const Loading loading{.options = options,
                        .folder = folder,
                        .config = described.config,
                        .stop = stop,
                        .progress = progress};
  ASSIGN_OR_RETURN(Computing computing, options.engine == "emulated"
                                            ? LoadEmulated(loading)
                                            : LoadCpu(loading));
  ASSIGN_OR_RETURN(auto core, CreateCore(options, described.config, computing));

  LoadedEngine loaded{.pool = std::move(computing.pool),
                      .layout = computing.layout,
                      .num_pages = computing.capacity.num_pages,
                      .runner = std::move(computing.runner),
                      .core = std::move(core)};
  Describe(options, source, described.config, computing, loaded);
  LOG_INFO("{}: {}, {} pages of {} tokens ({} MiB of KV), context of {} tokens",
           loaded.description.served_model(), computing.numerics_id,
           loaded.num_pages, loaded.layout.page_tokens,
           loaded.pool.memory().size() >> 20, computing.capacity.max_model_len);
  return loaded;
}

}  // namespace tidepool::worker
