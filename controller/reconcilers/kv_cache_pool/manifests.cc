#include "controller/reconcilers/kv_cache_pool/manifests.h"

#include <fmt/format.h>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/model_volumes.h"
#include "controller/reconcilers/names.h"
#include "controller/reconcilers/tls/pod_tls.h"

namespace tidepool::reconcilers {
namespace {

constexpr std::string_view kConductor = "conductor";
constexpr std::string_view kWorker = "worker";

// From a conductor's readiness until every node routes the Service to it:
// kube-proxies write their rules once a second. Only then is it available,
// is the fleet Ready, and may a rollout take an old conductor away.
constexpr int kRoutableSeconds = 2;

std::vector<std::string> Arguments(const KVCachePoolSpec& spec,
                                   const ConductorContext& context) {
  std::vector<std::string> arguments = {
      fmt::format("--model={}", context.model),
      "--host=::",
      fmt::format("--port={}", kConductorHttpPort),
      fmt::format("--control-port={}", kConductorControlPort),
      fmt::format("--drain-delay={}", kDrainDelaySeconds),
      fmt::format("--drain-timeout={}", spec.conductor.drain_seconds),
      "--log-format=json",
  };
  if (spec.model.source == ModelSpec::Source::kHub)
    arguments.push_back(fmt::format("--download-dir={}", kCacheFolder));
  if (!spec.model.served_name.empty())
    arguments.push_back(
        fmt::format("--served-model-name={}", spec.model.served_name));
  arguments.push_back(
      spec.conductor.needs_api_key
          ? fmt::format("--api-key-file={}/{}", kApiKeyFolder, kApiKeyEntry)
          : std::string("--no-auth"));
  for (const std::string& pool : context.worker_pools)
    arguments.push_back(fmt::format("--discover={}.{}.svc:{}", pool,
                                    context.scope.space, kWorkerControlPort));
  return arguments;
}

void AddApiKey(const KVCachePoolSpec& spec, const FamilyScope& scope,
               PodParts& parts) {
  if (!spec.conductor.needs_api_key) return;
  const std::string secret = spec.conductor.api_key_secret.empty()
                                 ? ApiKeyName(scope.pool)
                                 : spec.conductor.api_key_secret;
  parts.volumes.push_back(
      {{"name", "tidepool-api-key"},
       {"secret",
        {{"secretName", secret},
         {"defaultMode", 0440},
         {"items",
          Json::array({{{"key", kApiKeyEntry}, {"path", kApiKeyEntry}}})}}}});
  parts.mounts.push_back({{"name", "tidepool-api-key"},
                          {"mountPath", kApiKeyFolder},
                          {"readOnly", true}});
}

ResourcesSpec WithDefaults(ResourcesSpec resources) {
  // Enough to be placed sensibly; what a conductor takes grows with its load.
  const auto request = [&](const char* name, const char* amount) {
    if (!resources.limits.contains(name) && !resources.requests.contains(name))
      resources.requests[name] = amount;
  };
  request("cpu", "100m");
  request("memory", "256Mi");
  return resources;
}

PodParts ConductorPod(const KVCachePoolSpec& spec,
                      const ConductorContext& context) {
  const FamilyScope& scope = context.scope;
  PodParts parts{
      .labels = scope.Labels(kConductor),
      .selector = scope.Selector(kConductor),
      .service_account = ConductorName(scope.pool),
      .container = std::string(kConductor),
      .program = "/usr/bin/tidepool-conductor",
      .arguments = Arguments(spec, context),
      .image = context.image.Reference(scope.version),
      .pull_policy = context.image.pull_policy,
      .http_port = kConductorHttpPort,
      .ports = {{"http", kConductorHttpPort},
                {"control", kConductorControlPort}},
      .pod_facts = {},
      .resources = WithDefaults(spec.conductor.resources),
      .grace_seconds =
          kDrainDelaySeconds + spec.conductor.drain_seconds + kEndSeconds,
  };
  AddFolder(parts, "tidepool-tmp", "/tmp", std::nullopt);
  AddModelVolumes(spec.model, parts);
  if (spec.uses_tls) AddTls(scope.pool, kConductor, parts);
  AddApiKey(spec, scope, parts);
  return parts;
}

Json PodsOf(const FamilyScope& scope, std::string_view component) {
  return {{"podSelector", {{"matchLabels", scope.Selector(component)}}}};
}

Json TcpPorts(std::initializer_list<int> ports) {
  Json list = Json::array();
  for (const int port : ports)
    list.push_back({{"protocol", "TCP"}, {"port", port}});
  return list;
}

Json AnyAddress() {
  return Json::array({{{"ipBlock", {{"cidr", "0.0.0.0/0"}}}},
                      {{"ipBlock", {{"cidr", "::/0"}}}}});
}

Json FromController(const ConductorContext& context) {
  return {{"namespaceSelector",
           {{"matchLabels",
             {{"kubernetes.io/metadata.name", context.controller_space}}}}},
          {"podSelector",
           {{"matchLabels",
             {{"app.kubernetes.io/name", kAppName},
              {kComponentLabel, "controller"}}}}}};
}

// Peers of one rule: pods of this namespace, or of those selected.
Json Namespaces(const Json& selector) {
  return selector.is_object() ? Json{{"namespaceSelector", selector}}
                              : Json{{"podSelector", Json::object()}};
}

// Names, and the model's download.
void AddCommonEgress(const KVCachePoolSpec& spec, Json& egress) {
  egress.push_back(
      {{"ports", Json::array({{{"protocol", "UDP"}, {"port", 53}},
                              {{"protocol", "TCP"}, {"port", 53}}})}});
  if (spec.model.source != ModelSpec::Source::kHub) return;
  const auto& cidrs = spec.network_policy.model_egress_cidrs;
  if (cidrs.empty()) {
    egress.push_back({{"to", AnyAddress()}, {"ports", TcpPorts({443})}});
    return;
  }
  Json peers = Json::array();
  for (const std::string& cidr : cidrs)
    peers.push_back({{"ipBlock", {{"cidr", cidr}}}});
  // Mirrors and proxies listen where they like.
  egress.push_back({{"to", std::move(peers)}});
}

Json PolicySpec(const FamilyScope& scope, std::string_view component,
                Json ingress, Json egress) {
  return {{"podSelector", {{"matchLabels", scope.Selector(component)}}},
          {"policyTypes", {"Ingress", "Egress"}},
          {"ingress", std::move(ingress)},
          {"egress", std::move(egress)}};
}

Manifest ConductorPolicy(const KVCachePoolSpec& spec,
                         const ConductorContext& context) {
  const FamilyScope& scope = context.scope;
  const NetworkPolicySpec& policy = spec.network_policy;
  Json clients = Json::array({Namespaces(nullptr)});
  if (policy.gateway_namespaces.is_object())
    clients.push_back(Namespaces(policy.gateway_namespaces));
  if (policy.monitoring_namespaces.is_object())
    clients.push_back(Namespaces(policy.monitoring_namespaces));
  if (spec.conductor.IsExposed())
    for (Json& any : AnyAddress()) clients.push_back(std::move(any));
  Json ingress = Json::array({{{"from", std::move(clients)},
                               {"ports", TcpPorts({kConductorHttpPort})}},
                              {{"from", Json::array({FromController(context)})},
                               {"ports", TcpPorts({kConductorControlPort})}}});
  Json egress = Json::array({{{"to", Json::array({PodsOf(scope, kWorker)})},
                              {"ports", TcpPorts({kWorkerControlPort})}}});
  AddCommonEgress(spec, egress);
  Manifest manifest =
      scope.Make(kube::kNetworkPolicy, ConductorName(scope.pool), kConductor);
  manifest.object["spec"] =
      PolicySpec(scope, kConductor, std::move(ingress), std::move(egress));
  return manifest;
}

Manifest WorkerPolicy(const KVCachePoolSpec& spec,
                      const ConductorContext& context) {
  const FamilyScope& scope = context.scope;
  const Json peers = PodsOf(scope, kWorker);
  Json ingress = Json::array(
      {{{"from", Json::array({PodsOf(scope, kConductor), peers})},
        {"ports", TcpPorts({kWorkerControlPort, kWorkerTransferPort})}},
       {{"from", Json::array({FromController(context)})},
        {"ports", TcpPorts({kWorkerControlPort})}},
       {{"from",
         Json::array({Namespaces(spec.network_policy.monitoring_namespaces)})},
        {"ports", TcpPorts({kWorkerHttpPort})}}});
  Json egress = Json::array(
      {{{"to", Json::array({peers})},
        {"ports", TcpPorts({kWorkerControlPort, kWorkerTransferPort})}}});
  AddCommonEgress(spec, egress);
  Manifest manifest =
      scope.Make(kube::kNetworkPolicy, WorkerName(scope.pool), kWorker);
  manifest.object["spec"] =
      PolicySpec(scope, kWorker, std::move(ingress), std::move(egress));
  return manifest;
}

Json BackendPort(const KVCachePoolSpec& spec) {
  return spec.conductor.service_port;
}

Manifest IngressOf(const KVCachePoolSpec& spec, const FamilyScope& scope) {
  const IngressSpec& ingress = *spec.conductor.ingress;
  Manifest manifest = scope.Make(kube::kIngress, scope.pool, kConductor);
  // As the most common controller reads them; the user's win.
  Json annotations = {
      {"nginx.ingress.kubernetes.io/proxy-buffering", "off"},
      {"nginx.ingress.kubernetes.io/proxy-request-buffering", "off"},
      {"nginx.ingress.kubernetes.io/proxy-read-timeout", "3600"},
      {"nginx.ingress.kubernetes.io/proxy-send-timeout", "3600"},
      {"nginx.ingress.kubernetes.io/proxy-body-size", "0"},
  };
  if (ingress.annotations.is_object()) annotations.update(ingress.annotations);
  manifest.object["metadata"]["annotations"] = std::move(annotations);
  Json backend = {{"service",
                   {{"name", ConductorName(scope.pool)},
                    {"port", {{"number", BackendPort(spec)}}}}}};
  Json paths = Json::array({{{"path", "/"},
                             {"pathType", "Prefix"},
                             {"backend", std::move(backend)}}});
  Json body = {{"rules", Json::array({{{"host", ingress.host},
                                       {"http", {{"paths", paths}}}}})}};
  if (!ingress.class_name.empty())
    body["ingressClassName"] = ingress.class_name;
  if (!ingress.tls_secret.empty())
    body["tls"] = Json::array({{{"hosts", Json::array({ingress.host})},
                                {"secretName", ingress.tls_secret}}});
  manifest.object["spec"] = std::move(body);
  return manifest;
}

Manifest HttpRouteOf(const KVCachePoolSpec& spec, const FamilyScope& scope) {
  const HttpRouteSpec& route = *spec.conductor.http_route;
  Manifest manifest = scope.Make(kube::kHttpRoute, scope.pool, kConductor);
  Json rule = {
      {"matches",
       Json::array({{{"path", {{"type", "PathPrefix"}, {"value", "/"}}}}})},
      {"backendRefs", Json::array({{{"name", ConductorName(scope.pool)},
                                    {"port", BackendPort(spec)}}})},
      // None: conductors end what takes too long.
      {"timeouts", {{"request", "0s"}, {"backendRequest", "0s"}}}};
  Json body = {{"parentRefs", route.parent_refs},
               {"rules", Json::array({std::move(rule)})}};
  if (!route.hostnames.empty()) body["hostnames"] = route.hostnames;
  manifest.object["spec"] = std::move(body);
  return manifest;
}

}  // namespace

Manifest ConductorDeployment(const KVCachePoolSpec& spec,
                             const ConductorContext& context) {
  const FamilyScope& scope = context.scope;
  Manifest deployment =
      scope.Make(kube::kDeployment, ConductorName(scope.pool), kConductor);
  deployment.object["spec"] = {
      {"replicas", spec.conductor.replicas},
      {"minReadySeconds", kRoutableSeconds},
      {"revisionHistoryLimit", 3},
      {"selector", {{"matchLabels", scope.Selector(kConductor)}}},
      {"strategy",
       {{"type", "RollingUpdate"},
        {"rollingUpdate", {{"maxUnavailable", 0}, {"maxSurge", 1}}}}},
      {"template",
       PodTemplate(ConductorPod(spec, context), spec.conductor.overrides)}};
  return deployment;
}

Manifest ConductorService(const KVCachePoolSpec& spec,
                          const FamilyScope& scope) {
  Manifest service =
      scope.Make(kube::kService, ConductorName(scope.pool), kConductor);
  if (spec.conductor.service_annotations.is_object())
    service.object["metadata"]["annotations"] =
        spec.conductor.service_annotations;
  service.object["spec"] = {
      {"type", spec.conductor.service_type},
      {"selector", scope.Selector(kConductor)},
      {"ports", Json::array({{{"name", "http"},
                              {"protocol", "TCP"},
                              {"port", spec.conductor.service_port},
                              {"targetPort", "http"}}})}};
  return service;
}

std::vector<Manifest> ServiceAccounts(const FamilyScope& scope) {
  std::vector<Manifest> accounts;
  accounts.push_back(
      scope.Make(kube::kServiceAccount, ConductorName(scope.pool), kConductor));
  accounts.push_back(
      scope.Make(kube::kServiceAccount, WorkerName(scope.pool), kWorker));
  for (Manifest& account : accounts)
    account.object["automountServiceAccountToken"] = false;
  return accounts;
}

std::vector<Manifest> NetworkPolicies(const KVCachePoolSpec& spec,
                                      const ConductorContext& context) {
  if (!spec.network_policy.is_enabled) return {};
  std::vector<Manifest> policies;
  policies.push_back(ConductorPolicy(spec, context));
  policies.push_back(WorkerPolicy(spec, context));
  return policies;
}

std::vector<Manifest> Routes(const KVCachePoolSpec& spec,
                             const FamilyScope& scope) {
  std::vector<Manifest> routes;
  if (spec.conductor.ingress.has_value())
    routes.push_back(IngressOf(spec, scope));
  if (spec.conductor.http_route.has_value())
    routes.push_back(HttpRouteOf(spec, scope));
  return routes;
}

Manifest ApiKeySecret(const FamilyScope& scope, const std::string& key) {
  Manifest secret =
      scope.Make(kube::kSecret, ApiKeyName(scope.pool), kConductor);
  secret.object["type"] = "Opaque";
  secret.object["stringData"] = {{kApiKeyEntry, key}};
  return secret;
}

}  // namespace tidepool::reconcilers
