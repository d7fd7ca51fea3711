#include "controller/reconcilers/worker_pool/manifests.h"

#include <fmt/format.h>

#include <algorithm>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/model_volumes.h"
#include "controller/reconcilers/names.h"
#include "controller/reconcilers/quantity.h"
#include "controller/reconcilers/tls/pod_tls.h"
#include "dataplane/base/digest.h"

namespace tidepool::reconcilers {
namespace {

constexpr std::string_view kWorker = "worker";
constexpr int64_t kBatchedTokensDefault = 2048;

void AddSizes(const WorkerPoolSpec& spec, const WorkerContext& context,
              std::vector<std::string>& arguments) {
  // A step must have room for one token of every sequence.
  const int64_t batched =
      spec.is_prefill ? spec.chunk_tokens
                      : std::max(kBatchedTokensDefault, spec.max_num_seqs);
  arguments.push_back(fmt::format("--max-num-batched-tokens={}", batched));
  if (!spec.is_prefill)
    arguments.push_back(fmt::format("--max-num-seqs={}", spec.max_num_seqs));
  if (spec.max_model_len.has_value())
    arguments.push_back(fmt::format("--max-model-len={}", *spec.max_model_len));
  if (context.memory.kv_bytes > 0)
    arguments.push_back(
        fmt::format("--kv-cache-memory={}", context.memory.kv_bytes));
}

std::vector<std::string> Arguments(const WorkerPoolSpec& spec,
                                   const WorkerContext& context) {
  const KVCachePoolSpec& family = *context.family;
  std::vector<std::string> arguments = {
      fmt::format("--role={}", spec.is_prefill ? "prefill" : "decode"),
      fmt::format("--model={}", context.model),
      "--name=$(POD_NAME)",
      "--host=::",
      "--advertise-host=$(POD_IP)",
      fmt::format("--port={}", kWorkerControlPort),
      fmt::format("--transfer-port={}", kWorkerTransferPort),
      fmt::format("--metrics-port={}", kWorkerHttpPort),
      fmt::format("--dtype={}", family.engine.dtype),
      fmt::format("--block-size={}", family.engine.block_size),
      // Pods share no memory, not even on one node.
      "--transport=tcp",
      fmt::format("--drain-timeout={}", spec.drain_seconds),
      "--log-format=json",
  };
  if (family.model.source == ModelSpec::Source::kHub)
    arguments.push_back(fmt::format("--download-dir={}", kCacheFolder));
  if (!family.model.served_name.empty())
    arguments.push_back(
        fmt::format("--served-model-name={}", family.model.served_name));
  AddSizes(spec, context, arguments);
  if (family.engine.is_emulated) {
    arguments.push_back("--engine=emulated");
    arguments.push_back(fmt::format("--perf-model={}/{}", kPerfModelFolder,
                                    family.engine.perf_key));
  }
  return arguments;
}

void AddPerfModel(const EngineSpec& engine, PodParts& parts) {
  if (!engine.is_emulated) return;
  parts.volumes.push_back({{"name", "tidepool-perf-model"},
                           {"configMap", {{"name", engine.perf_config_map}}}});
  parts.mounts.push_back({{"name", "tidepool-perf-model"},
                          {"mountPath", kPerfModelFolder},
                          {"readOnly", true}});
}

// Memory is requested in full: a worker uses what it was given.
ResourcesSpec WithMemory(ResourcesSpec resources, const MemoryPlan& memory) {
  const auto limit = resources.limits.find("memory");
  if (limit != resources.limits.end()) {
    resources.requests["memory"] = *limit;
  } else if (memory.memory_bytes > 0) {
    resources.limits["memory"] = FormatBytes(memory.memory_bytes);
    resources.requests["memory"] = resources.limits["memory"];
  }
  return resources;
}

PodParts WorkerPod(const WorkerPoolSpec& spec, const WorkerContext& context) {
  const FamilyScope& scope = context.scope;
  PodParts parts{
      .labels = scope.Labels(kWorker),
      .selector = WorkerSelector(scope, context.pool),
      .service_account = WorkerName(scope.pool),
      .container = std::string(kWorker),
      .program = "/usr/bin/tidepool-worker",
      .arguments = Arguments(spec, context),
      .image = context.image.Reference(scope.version),
      .pull_policy = context.image.pull_policy,
      .http_port = kWorkerHttpPort,
      .ports = {{"control", kWorkerControlPort},
                {"transfer", kWorkerTransferPort},
                {"http", kWorkerHttpPort}},
      .pod_facts = {"POD_IP", "POD_NAME"},
      .resources = WithMemory(spec.resources, context.memory),
      .grace_seconds = spec.drain_seconds + kEndSeconds,
  };
  parts.labels[kPoolLabel] = context.pool;
  // The role it starts in; what it has become is patched on the pod.
  parts.labels[kRoleLabel] = spec.is_prefill ? "prefill" : "decode";
  AddFolder(parts, "tidepool-tmp", "/tmp", std::nullopt);
  AddModelVolumes(context.family->model, parts);
  AddPerfModel(context.family->engine, parts);
  if (context.family->uses_tls) AddTls(scope.pool, kWorker, parts);
  return parts;
}

}  // namespace

Json WorkerSelector(const FamilyScope& scope, const std::string& pool) {
  Json selector = scope.Selector(kWorker);
  selector[kPoolLabel] = pool;
  return selector;
}

Manifest WorkerStatefulSet(const WorkerPoolSpec& spec,
                           const WorkerContext& context, int32_t replicas) {
  Manifest set = context.scope.Make(kube::kStatefulSet, context.pool, kWorker);
  Json& metadata = set.object["metadata"];
  metadata["labels"][kPoolLabel] = context.pool;
  Json pod = PodTemplate(WorkerPod(spec, context), spec.overrides);
  metadata["annotations"] = {
      {kTemplateAnnotation, Sha256Of(pod.dump()).Hex().substr(0, 16)}};
  set.object["spec"] = {
      {"replicas", replicas},
      {"serviceName", context.pool},
      {"podManagementPolicy", "Parallel"},
      {"updateStrategy", {{"type", "OnDelete"}}},
      {"revisionHistoryLimit", 3},
      {"selector",
       {{"matchLabels", WorkerSelector(context.scope, context.pool)}}},
      {"template", std::move(pod)}};
  return set;
}

Manifest WorkerService(const WorkerContext& context) {
  Manifest service = context.scope.Make(kube::kService, context.pool, kWorker);
  service.object["metadata"]["labels"][kPoolLabel] = context.pool;
  Json ports = Json::array();
  for (const auto& [name, port] : {std::pair{"control", kWorkerControlPort},
                                   std::pair{"transfer", kWorkerTransferPort},
                                   std::pair{"http", kWorkerHttpPort}})
    ports.push_back({{"name", name},
                     {"protocol", "TCP"},
                     {"port", port},
                     {"targetPort", name}});
  service.object["spec"] = {
      {"type", "ClusterIP"},
      {"clusterIP", "None"},
      {"publishNotReadyAddresses", true},
      {"selector", WorkerSelector(context.scope, context.pool)},
      {"ports", std::move(ports)}};
  return service;
}

std::string TemplateDigest(const Manifest& stateful_set) {
  return stateful_set.object["metadata"]["annotations"][kTemplateAnnotation]
      .get<std::string>();
}

}  // namespace tidepool::reconcilers
