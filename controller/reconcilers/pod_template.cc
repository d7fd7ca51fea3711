#include "controller/reconcilers/pod_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "controller/reconcilers/names.h"
#include "controller/reconcilers/quantity.h"

namespace tidepool::reconcilers {
namespace {

constexpr std::string_view kOwnVolumePrefix = "tidepool-";

// Keys that begin with one of `ours` are none of the user's.
Json WithoutOurKeys(const SpecReader& reader, std::string_view name,
                    std::initializer_list<std::string_view> ours) {
  Json map = reader.TextMap(name);
  if (map.is_null()) return map;
  for (const auto& [key, value] : map.items())
    if (std::ranges::any_of(
            ours, [&](std::string_view own) { return key.starts_with(own); }))
      reader.Complain(fmt::format("{}.{}", name, key),
                      "belongs to the controller");
  return map;
}

// Elements must be objects with a name that `is_taken` does not know.
template <typename IsTaken>
Json NamedList(const SpecReader& reader, std::string_view name,
               IsTaken is_taken) {
  Json list = reader.RawArray(name);
  for (const SpecReader& element : reader.Objects(name)) {
    const std::string element_name = element.RequiredText("name");
    if (is_taken(element_name))
      element.Complain(
          "name", fmt::format("`{}` belongs to the controller", element_name));
  }
  return list;
}

bool IsOurVolume(std::string_view name) {
  return name.starts_with(kOwnVolumePrefix);
}
bool IsOurVariable(std::string_view name) {
  return name == "POD_IP" || name == "POD_NAME" || name == "HF_TOKEN";
}

void Append(Json& to, const Json& more) {
  if (!more.is_array()) return;
  for (const Json& element : more) to.push_back(element);
}

void MergeInto(Json& to, const Json& more) {
  if (!more.is_object()) return;
  for (const auto& [key, value] : more.items())
    if (!to.contains(key)) to[key] = value;
}

Json Probe(const char* path, int period, int failures) {
  return {{"httpGet", {{"path", path}, {"port", "http"}}},
          {"periodSeconds", period},
          {"timeoutSeconds", std::max(1, std::min(period, 5))},
          {"failureThreshold", failures}};
}

Json SecurityContext(const ResourcesSpec& resources) {
  Json capabilities = {{"drop", {"ALL"}}};
  if (resources.NeedsPinnedMemory()) capabilities["add"] = {"IPC_LOCK"};
  return {{"allowPrivilegeEscalation", false},
          {"readOnlyRootFilesystem", true},
          {"runAsNonRoot", true},
          {"capabilities", std::move(capabilities)}};
}

Json Environment(const PodParts& parts, const PodOverrides& overrides) {
  Json env = Json::array();
  for (const std::string& fact : parts.pod_facts)
    env.push_back({{"name", fact},
                   {"valueFrom",
                    {{"fieldRef",
                      {{"apiVersion", "v1"},
                       {"fieldPath", fact == "POD_IP" ? "status.podIP"
                                                      : "metadata.name"}}}}}});
  Append(env, parts.env);
  Append(env, overrides.env);
  return env;
}

Json Container(const PodParts& parts, const PodOverrides& overrides) {
  Json ports = Json::array();
  for (const auto& [name, port] : parts.ports)
    ports.push_back(
        {{"name", name}, {"containerPort", port}, {"protocol", "TCP"}});
  Json mounts = parts.mounts;
  Append(mounts, overrides.volume_mounts);
  Json container = {
      {"name", parts.container},
      {"image", parts.image},
      {"imagePullPolicy", parts.pull_policy},
      {"command", {parts.program}},
      {"args", parts.arguments},
      {"ports", std::move(ports)},
      {"securityContext", SecurityContext(parts.resources)},
      {"volumeMounts", std::move(mounts)},
      // Until the process answers at all; downloads and loads come after.
      {"startupProbe", Probe("/health", 1, 120)},
      // Fails once work stands still.
      {"livenessProbe", Probe("/health", 10, 6)},
      {"readinessProbe", Probe("/ready", parts.ready_period_seconds, 2)},
      // A crash on a restart loop shows why in the pod's status.
      {"terminationMessagePolicy", "FallbackToLogsOnError"},
  };
  if (Json env = Environment(parts, overrides); !env.empty())
    container["env"] = std::move(env);
  Json resources = Json::object();
  if (!parts.resources.limits.empty())
    resources["limits"] = parts.resources.limits;
  if (!parts.resources.requests.empty())
    resources["requests"] = parts.resources.requests;
  if (!resources.empty()) container["resources"] = std::move(resources);
  return container;
}

// The user's, each counting the pods of the same owner unless it says which;
// otherwise a wish to be apart that keeps no pod from running.
Json Spread(const PodParts& parts, const PodOverrides& overrides) {
  const Json selector = {{"matchLabels", parts.selector}};
  if (!overrides.topology_spread_constraints.is_array())
    return Json::array({{{"maxSkew", 1},
                         {"topologyKey", "kubernetes.io/hostname"},
                         {"whenUnsatisfiable", "ScheduleAnyway"},
                         {"labelSelector", selector}}});
  Json constraints = overrides.topology_spread_constraints;
  for (Json& constraint : constraints)
    if (constraint.is_object() && !constraint.contains("labelSelector"))
      constraint["labelSelector"] = selector;
  return constraints;
}

void AddPlacement(const PodOverrides& overrides, Json& spec) {
  const auto add = [&](const char* name, const Json& value) {
    if (!value.is_null()) spec[name] = value;
  };
  add("nodeSelector", overrides.node_selector);
  add("tolerations", overrides.tolerations);
  add("affinity", overrides.affinity);
  add("imagePullSecrets", overrides.image_pull_secrets);
  if (!overrides.priority_class.empty())
    spec["priorityClassName"] = overrides.priority_class;
  if (!overrides.runtime_class.empty())
    spec["runtimeClassName"] = overrides.runtime_class;
}

}  // namespace

PodOverrides ReadOverrides(const SpecReader& reader) {
  PodOverrides overrides;
  overrides.labels =
      WithoutOurKeys(reader, "labels", {"tidepool.dev/", "app.kubernetes.io/"});
  overrides.annotations =
      WithoutOurKeys(reader, "annotations", {"tidepool.dev/"});
  overrides.node_selector = reader.TextMap("nodeSelector");
  overrides.tolerations = reader.RawArray("tolerations");
  overrides.affinity = reader.RawObject("affinity");
  overrides.topology_spread_constraints =
      reader.RawArray("topologySpreadConstraints");
  overrides.priority_class = reader.Text("priorityClassName");
  overrides.runtime_class = reader.Text("runtimeClassName");
  const auto nothing = [](std::string_view) { return false; };
  overrides.image_pull_secrets = NamedList(reader, "imagePullSecrets", nothing);
  overrides.volumes = NamedList(reader, "volumes", IsOurVolume);
  overrides.volume_mounts = NamedList(reader, "volumeMounts", IsOurVolume);
  overrides.env = NamedList(reader, "env", IsOurVariable);
  return overrides;
}

uint64_t ResourcesSpec::Amount(std::string_view name) const {
  for (const Json* list : {&limits, &requests}) {
    const auto found = list->find(name);
    if (found == list->end()) continue;
    const StatusOr<uint64_t> amount = ParseQuantity(
        found->is_string() ? found->get<std::string>() : found->dump());
    return amount.value_or(0);
  }
  return 0;
}

uint32_t ResourcesSpec::Devices() const {
  constexpr uint64_t kDevicesMax = 1024;
  uint64_t devices = 0;
  for (const auto& [name, amount] : limits.items())
    // As device plugins name them: nvidia.com/gpu, amd.com/gpu,
    // nvidia.com/mig-1g.5gb.
    if (name.ends_with("/gpu") || name.find("/mig-") != name.npos)
      devices = std::min(kDevicesMax, devices + Amount(name));
  return static_cast<uint32_t>(std::max<uint64_t>(devices, 1));
}

bool ResourcesSpec::NeedsPinnedMemory() const {
  return std::ranges::any_of(limits.items(), [](const auto& item) {
    return item.key().starts_with("rdma/");
  });
}

ResourcesSpec ReadResources(const SpecReader& reader) {
  ResourcesSpec resources;
  const auto read = [&](const char* name, Json& into) {
    const Json list = reader.RawObject(name);
    if (list.is_null()) return;
    const SpecReader amounts = reader.Object(name);
    for (const auto& [key, value] : list.items())
      if (amounts.Quantity(key).has_value())
        into[key] = value.is_string() ? value : Json(value.dump());
  };
  read("limits", resources.limits);
  read("requests", resources.requests);
  return resources;
}

std::string ImageSpec::Reference(std::string_view version) const {
  return digest.empty() ? fmt::format("{}:{}", repository, version)
                        : fmt::format("{}@{}", repository, digest);
}

void AddFolder(PodParts& parts, std::string_view name, std::string_view path,
               std::optional<uint64_t> bytes_max) {
  Json folder = Json::object();
  if (bytes_max.has_value()) folder["sizeLimit"] = FormatBytes(*bytes_max);
  parts.volumes.push_back({{"name", name}, {"emptyDir", std::move(folder)}});
  parts.mounts.push_back({{"name", name}, {"mountPath", path}});
}

Json PodTemplate(const PodParts& parts, const PodOverrides& overrides) {
  Json volumes = parts.volumes;
  Append(volumes, overrides.volumes);
  Json spec = {
      {"serviceAccountName", parts.service_account},
      {"automountServiceAccountToken", false},
      {"enableServiceLinks", false},
      // The program is not process 1 then, for which the kernel drops a SIGTERM
      // that comes before there is a handler: a pod deleted while it starts
      // would last its whole grace period.
      {"shareProcessNamespace", true},
      {"terminationGracePeriodSeconds", parts.grace_seconds},
      {"securityContext",
       {{"runAsNonRoot", true},
        {"runAsUser", kUserId},
        {"runAsGroup", kUserId},
        {"fsGroup", kUserId},
        {"fsGroupChangePolicy", "OnRootMismatch"},
        {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
      {"topologySpreadConstraints", Spread(parts, overrides)},
      {"containers", Json::array({Container(parts, overrides)})},
      {"volumes", std::move(volumes)},
  };
  AddPlacement(overrides, spec);
  Json labels = parts.labels;
  MergeInto(labels, overrides.labels);
  Json metadata = {{"labels", std::move(labels)}};
  if (overrides.annotations.is_object())
    metadata["annotations"] = overrides.annotations;
  return {{"metadata", std::move(metadata)}, {"spec", std::move(spec)}};
}

}  // namespace tidepool::reconcilers
