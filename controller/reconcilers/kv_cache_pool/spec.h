// KVCachePool.spec, typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/reconcilers/model_spec.h"
#include "controller/reconcilers/pod_template.h"
#include "controller/reconcilers/spec_reader.h"
#include "dataplane/scheduling/planner.h"

namespace tidepool::reconcilers {

struct IngressSpec {
  std::string host, class_name, tls_secret;
  Json annotations;
};

struct HttpRouteSpec {
  Json parent_refs = Json::array();
  std::vector<std::string> hostnames;
};

struct ConductorSpec {
  int32_t replicas = 1;
  int64_t drain_seconds = 600;
  std::string service_type = "ClusterIP";
  int service_port = 80;
  Json service_annotations;
  bool needs_api_key = true;
  std::string api_key_secret;  // "": generated
  std::optional<IngressSpec> ingress;
  std::optional<HttpRouteSpec> http_route;
  ResourcesSpec resources;
  PodOverrides overrides;

  bool IsExposed() const { return service_type != "ClusterIP"; }
};

struct NetworkPolicySpec {
  bool is_enabled = true;
  // Label selectors; null: this namespace alone.
  Json gateway_namespaces, monitoring_namespaces;
  std::vector<std::string> model_egress_cidrs;
};

struct SloSpec {
  std::optional<int64_t> ttft_ms, tbt_ms;
  int percentile = 95;
};

struct RebalancingSpec {
  scheduling::RebalancingPolicy policy = scheduling::RebalancingPolicy::kOff;
  std::optional<uint32_t> accelerator_budget;
  int64_t stabilization_seconds = 60;
};

struct KVCachePoolSpec {
  std::string version;  // "": the controller's when it saw the pool first
  ImageSpec image;      // repository "": the controller's default
  ModelSpec model;
  EngineSpec engine;
  ConductorSpec conductor;
  SloSpec slo;
  RebalancingSpec rebalancing;
  NetworkPolicySpec network_policy;
  bool uses_tls = true;  // between the fleet's own processes

  // What the planner is to be told.
  scheduling::PlannerConfig PlannerConfig() const;
};

// Never fails: what is wrong is in `problems`, one line per field, and reads
// as its default.
KVCachePoolSpec ReadKVCachePool(const std::string& name, const Json& spec,
                                Problems& problems);
// What cannot be read is no budget: with these problems nothing may grow.
bool IsBudgetUnreadable(const Problems& problems);

}  // namespace tidepool::reconcilers
