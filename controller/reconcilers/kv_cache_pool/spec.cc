#include "controller/reconcilers/kv_cache_pool/spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace tidepool::reconcilers {
namespace {

constexpr size_t kNameBytesMax = 50;
constexpr size_t kParentsMax = 8;

ImageSpec ReadImage(const SpecReader& reader) {
  ImageSpec image;
  image.repository = reader.Text("repository");
  image.digest = reader.Text("digest");
  if (!image.digest.empty() &&
      (!image.digest.starts_with("sha256:") || image.digest.size() != 71))
    reader.Complain("digest", "is not sha256: and 64 hexadecimal digits");
  static constexpr const char* kPolicies[] = {"Always", "IfNotPresent",
                                              "Never"};
  image.pull_policy = kPolicies[reader.Choice(
      "pullPolicy", {"Always", "IfNotPresent", "Never"}, 1)];
  return image;
}

void ReadService(const SpecReader& reader, ConductorSpec& conductor) {
  static constexpr const char* kTypes[] = {"ClusterIP", "LoadBalancer",
                                           "NodePort"};
  conductor.service_type = kTypes[reader.Choice(
      "type", {"ClusterIP", "LoadBalancer", "NodePort"}, 0)];
  conductor.service_port =
      static_cast<int>(reader.Integer("port", 80, 1, 65535));
  conductor.service_annotations = reader.TextMap("annotations");
}

HttpRouteSpec ReadHttpRoute(const SpecReader& reader) {
  HttpRouteSpec route;
  for (const SpecReader& parent : reader.Objects("parentRefs")) {
    Json reference = {{"name", parent.RequiredText("name")}};
    for (const char* field : {"namespace", "sectionName"})
      if (parent.Has(field)) reference[field] = parent.Text(field);
    route.parent_refs.push_back(std::move(reference));
  }
  if (route.parent_refs.empty() || route.parent_refs.size() > kParentsMax)
    reader.Complain("parentRefs", "must have 1 to 8 elements");
  route.hostnames = reader.TextList("hostnames");
  return route;
}

ConductorSpec ReadConductor(const SpecReader& reader) {
  ConductorSpec conductor;
  conductor.replicas =
      static_cast<int32_t>(reader.Integer("replicas", 1, 1, 64));
  conductor.drain_seconds = reader.Integer("drainSeconds", 600, 0, 86400);
  ReadService(reader.Object("service"), conductor);
  const SpecReader auth = reader.Object("auth");
  conductor.needs_api_key = auth.Choice("type", {"ApiKey", "None"}, 0) == 0;
  if (auth.Has("apiKeySecretRef")) {
    conductor.api_key_secret =
        auth.Object("apiKeySecretRef").RequiredText("name");
    if (!conductor.needs_api_key)
      auth.Complain("apiKeySecretRef", "is for type ApiKey only");
  }
  if (reader.Has("ingress")) {
    const SpecReader ingress = reader.Object("ingress");
    conductor.ingress =
        IngressSpec{.host = ingress.RequiredText("host"),
                    .class_name = ingress.Text("className"),
                    .tls_secret = ingress.Text("tlsSecretName"),
                    .annotations = ingress.TextMap("annotations")};
  }
  if (reader.Has("httpRoute"))
    conductor.http_route = ReadHttpRoute(reader.Object("httpRoute"));
  if (conductor.ingress.has_value() && conductor.http_route.has_value())
    reader.Complain("httpRoute", "and ingress exclude each other");
  conductor.resources = ReadResources(reader.Object("resources"));
  conductor.overrides = ReadOverrides(reader.Object("template"));
  return conductor;
}

NetworkPolicySpec ReadNetworkPolicy(const SpecReader& reader) {
  NetworkPolicySpec policy;
  policy.is_enabled = reader.Choice("policy", {"Enabled", "Disabled"}, 0) == 0;
  policy.gateway_namespaces = reader.RawObject("gatewayNamespaceSelector");
  policy.monitoring_namespaces =
      reader.RawObject("monitoringNamespaceSelector");
  policy.model_egress_cidrs = reader.TextList("modelEgressCIDRs");
  return policy;
}

SloSpec ReadSlo(const SpecReader& reader) {
  return {
      .ttft_ms = reader.OptionalInteger("ttftMilliseconds", 1, 3'600'000),
      .tbt_ms = reader.OptionalInteger("tbtMilliseconds", 1, 600'000),
      .percentile = static_cast<int>(reader.Integer("percentile", 95, 50, 99))};
}

RebalancingSpec ReadRebalancing(const SpecReader& reader) {
  using scheduling::RebalancingPolicy;
  RebalancingSpec rebalancing;
  if (const auto budget =
          reader.OptionalInteger("acceleratorBudget", 1, 1'000'000))
    rebalancing.accelerator_budget = static_cast<uint32_t>(*budget);
  const size_t otherwise = rebalancing.accelerator_budget.has_value() ? 1 : 0;
  rebalancing.policy =
      reader.Choice("policy", {"Off", "Reactive"}, otherwise) == 1
          ? RebalancingPolicy::kReactive
          : RebalancingPolicy::kOff;
  if (rebalancing.policy == RebalancingPolicy::kReactive &&
      !rebalancing.accelerator_budget.has_value())
    reader.Complain("acceleratorBudget", "is required with policy Reactive");
  rebalancing.stabilization_seconds =
      reader.Integer("stabilizationSeconds", 60, 1, 3600);
  return rebalancing;
}

}  // namespace

scheduling::PlannerConfig KVCachePoolSpec::PlannerConfig() const {
  using std::chrono::milliseconds;
  scheduling::PlannerConfig config;
  config.policy = rebalancing.policy;
  config.accelerator_budget = rebalancing.accelerator_budget;
  config.ttft_slo = milliseconds(slo.ttft_ms.value_or(0));
  config.tbt_slo = milliseconds(slo.tbt_ms.value_or(0));
  config.stabilization =
      std::chrono::seconds(rebalancing.stabilization_seconds);
  config.cooldown = std::min(config.cooldown, config.stabilization);
  return config;
}

bool IsBudgetUnreadable(const Problems& problems) {
  return std::ranges::any_of(problems, [](const std::string& problem) {
    return problem.starts_with("spec.rebalancing") ||
           problem.starts_with("spec: ");
  });
}

KVCachePoolSpec ReadKVCachePool(const std::string& name, const Json& spec,
                                Problems& problems) {
  const SpecReader reader(spec, "spec", problems);
  if (!IsDnsLabel(name) || name.size() > kNameBytesMax)
    problems.push_back(
        fmt::format("metadata.name: `{}` is not a DNS label of at most {} "
                    "characters",
                    name, kNameBytesMax));
  KVCachePoolSpec pool;
  pool.version = reader.Text("version", "", 128);
  pool.image = ReadImage(reader.Object("image"));
  pool.model = ReadModel(reader.Object("model"));
  pool.engine = ReadEngine(reader.Object("engine"));
  pool.conductor = ReadConductor(reader.Object("conductor"));
  pool.slo = ReadSlo(reader.Object("slo"));
  pool.rebalancing = ReadRebalancing(reader.Object("rebalancing"));
  pool.network_policy = ReadNetworkPolicy(reader.Object("networkPolicy"));
  pool.uses_tls =
      reader.Object("tls").Choice("policy", {"SelfSigned", "Off"}, 0) == 0;
  return pool;
}

}  // namespace tidepool::reconcilers
