#include "dataplane/worker/worker_options.h"

#include <unistd.h>

#include <algorithm>

#include "dataplane/base/config.h"

namespace tidepool::worker {
namespace {

void AddServing(OptionSet& set, WorkerOptions& options) {
  set.AddString("served-model-name", options.served_model_name,
                "the name clients use; by default the model's");
  set.AddChoice("role", options.role, {"prefill", "decode"},
                "decode also serves whole requests alone");
  set.AddString("host", options.host,
                "address to listen on; :: is all, of IPv6 and IPv4");
  set.AddString("advertise-host", options.advertise_host,
                "address others reach this worker at; by default --host");
  set.AddInt("port", options.port, {0, 65535},
             "port of the control service; 0 takes a free one");
  set.AddInt("transfer-port", options.transfer_port, {0, 65535},
             "port that KV is sent to; 0 takes a free one");
  set.AddInt("metrics-port", options.metrics_port, {-1, 65535},
             "port of /metrics, /health and /ready; 0 takes a free one, -1 "
             "serves none");
  set.AddString("name", options.name,
                "what conductors call this worker; by default the host's name");
  set.AddInt("step-timeout", options.step_timeout_s, {1, 24 * 3600},
             "seconds that one step may take before /health says 503");
}

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) return "";
  return name;
}

Status ValidateServing(const WorkerOptions& options) {
  if (options.model.empty()) return InvalidArgument("--model: is empty");
  const bool plain = std::ranges::all_of(options.name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' ||
           c == '_' || c == '.';
  });
  if (!plain || options.name.size() > 253)
    return InvalidArgument(
        "--name: has at most 253 letters, digits, dots, dashes and "
        "underscores");
  const bool wildcard = options.host == "0.0.0.0" || options.host == "::" ||
                        options.host == "[::]";
  if (wildcard && options.advertise_host.empty())
    return InvalidArgument(
        "--advertise-host: must say how others reach this worker when --host "
        "is {}",
        options.host);
  return OkStatus();
}

}  // namespace

StatusOr<std::optional<WorkerOptions>> ParseWorkerOptions(
    int argc, const char* const* argv) {
  WorkerOptions options;
  OptionSet set("tidepool-worker",
                "One engine process: prefills prompts, or decodes.");
  AddModelOptions(set, options);
  AddServing(set, options);
  AddEngineOptions(set, options);
  AddProcessOptions(set, options);
  rpc::AddTlsOptions(set, options);
  ASSIGN_OR_RETURN(const OptionSet::Outcome outcome, set.Parse(argc, argv));
  if (outcome == OptionSet::Outcome::kExit) return std::nullopt;
  RETURN_IF_ERROR(ValidateServing(options));
  RETURN_IF_ERROR(Validate(static_cast<const EngineOptions&>(options)));
  RETURN_IF_ERROR(rpc::Validate(options));
  if (options.advertise_host.empty()) options.advertise_host = options.host;
  if (options.name.empty()) options.name = HostName();
  return options;
}

}  // namespace tidepool::worker
