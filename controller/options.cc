#include "controller/options.h"

#include "dataplane/base/config.h"

namespace tidepool::controller {

StatusOr<std::optional<ControllerOptions>> ParseControllerOptions(
    int argc, const char* const* argv) {
  ControllerOptions options;
  OptionSet set("tidepool-controller",
                "Reconciles Tidepool's resources and rebalances fleets.");
  set.AddString("kubeconfig", options.kubeconfig,
                "a kubeconfig file; by default the variable KUBECONFIG, or "
                "the pod's service account");
  set.AddString("watch-namespace", options.watch_namespace,
                "the one namespace to look after; empty for all");
  set.AddString("image-repository", options.image_repository,
                "image of fleets that name none, without its tag");
  set.AddString("hub-endpoint", options.hub_endpoint,
                "where hf: models are looked up");
  set.AddString("metrics-host", options.metrics_host,
                "address to serve metrics and probes on; empty for all, IPv6 "
                "and IPv4");
  set.AddInt("metrics-port", options.metrics_port, {0, 65535},
             "port of /metrics, /healthz and /readyz; 0 takes a free one");
  set.AddBool("leader-elect", options.leader_elect,
              "lead only while holding the Lease; off for one replica alone");
  set.AddString("lease-namespace", options.lease_namespace,
                "of the Lease; by default this pod's");
  set.AddString("lease-name", options.lease_name, "of the Lease");
  set.AddInt("reconcile-threads", options.reconcile_threads, {1, 64},
             "fleets that are reconciled at once");
  set.AddBool("check-install", options.check_install,
              "instead of running, wait until a controller is seen leading, "
              "tell how fleets are, and fail if there is none");
  set.AddBool("check-uninstall", options.check_uninstall,
              "instead of running, name the resources that are left and fail "
              "if there are any");
  set.AddChoice("log-level", options.log.level,
                {"trace", "debug", "info", "warning", "error", "off"},
                "least severe message to log");
  set.AddChoice("log-format", options.log.format, {"text", "json"},
                "how a log line looks");
  ASSIGN_OR_RETURN(const OptionSet::Outcome outcome, set.Parse(argc, argv));
  if (outcome == OptionSet::Outcome::kExit) return std::nullopt;
  if (options.image_repository.empty())
    return InvalidArgument("--image-repository: is empty");
  if (options.check_install && options.check_uninstall)
    return InvalidArgument(
        "--check-install and --check-uninstall exclude each other");
  if (options.lease_name.empty())
    return InvalidArgument("--lease-name: is empty");
  return options;
}

}  // namespace tidepool::controller
