// The options of `tidepool-controller`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/base/log.h"
#include "dataplane/base/status.h"

namespace tidepool::controller {

struct ControllerOptions {
  std::string kubeconfig;       // "": KUBECONFIG, or the pod's own account
  std::string watch_namespace;  // "": all
  std::string image_repository = "localhost/tidepool";
  std::string hub_endpoint = "https://huggingface.co";
  std::string metrics_host;  // "": all addresses, IPv6 and IPv4
  int64_t metrics_port = 8081;
  bool leader_elect = true;
  std::string lease_namespace;  // "": that of this pod
  std::string lease_name = "tidepool-controller";
  int64_t reconcile_threads = 4;
  // Instead of running: tell whether a controller is at work, or whether
  // resources are left.
  bool check_install = false;
  bool check_uninstall = false;
  LogOptions log;
};

// nullopt if the command line was answered (--help…).
// Errors: kInvalidArgument naming the option.
StatusOr<std::optional<ControllerOptions>> ParseControllerOptions(
    int argc, const char* const* argv);

}  // namespace tidepool::controller
