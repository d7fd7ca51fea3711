// The pods of a fleet: one container of the one image, under the `restricted`
// Pod Security Standard, with what the user adds.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/reconcilers/spec_reader.h"

namespace tidepool::reconcilers {

// `spec.template`: handed on as it is, but for what is ours.
struct PodOverrides {
  Json labels, annotations, node_selector, tolerations, affinity;
  Json topology_spread_constraints, image_pull_secrets;
  Json volumes, volume_mounts, env;
  std::string priority_class, runtime_class;
};
PodOverrides ReadOverrides(const SpecReader& reader);

// `resources`: any names, so that GPUs, rdma/* and huge pages pass.
struct ResourcesSpec {
  Json limits = Json::object(), requests = Json::object();

  // Of the limit, else of the request; 0 if neither is there.
  uint64_t Amount(std::string_view name) const;
  // What acceleratorBudget counts: whole devices of one container, at least 1
  // (a worker without any is a device of its own).
  uint32_t Devices() const;
  // RDMA pins memory, which `restricted` does not allow.
  bool NeedsPinnedMemory() const;
};
ResourcesSpec ReadResources(const SpecReader& reader);

struct ImageSpec {
  std::string repository, digest;
  std::string pull_policy = "IfNotPresent";

  // A digest wins over the version, which is the tag.
  std::string Reference(std::string_view version) const;
};

// What is ours in one kind of pod.
struct PodParts {
  Json labels;    // on the pod
  Json selector;  // those by which its owner knows it
  std::string service_account;
  std::string container;
  std::string program;  // absolute
  std::vector<std::string> arguments;
  std::string image, pull_policy;
  int http_port = 0;                   // the probes'
  std::map<std::string, int> ports;    // by name, http_port included
  std::vector<std::string> pod_facts;  // env: POD_IP, POD_NAME
  Json env = Json::array();            // more of ours
  Json volumes = Json::array(), mounts = Json::array();
  ResourcesSpec resources;
  int64_t grace_seconds = 30;
  // Ready is looked for this often once the process has started.
  int ready_period_seconds = 2;
};

// A PodTemplateSpec. Deterministic: equal arguments give equal JSON.
Json PodTemplate(const PodParts& parts, const PodOverrides& overrides);

// {"name": …, "emptyDir": …} and its mount.
void AddFolder(PodParts& parts, std::string_view name, std::string_view path,
               std::optional<uint64_t> bytes_max);

}  // namespace tidepool::reconcilers
