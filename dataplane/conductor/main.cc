// tidepool-conductor: HTTP in front, workers behind.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "dataplane/base/file.h"
#include "dataplane/base/random.h"
#include "dataplane/conductor/conductor_options.h"
#include "dataplane/conductor/json_writer.h"
#include "dataplane/model/model_source.h"

namespace tidepool::conductor {
namespace {

// Every connection is a descriptor.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
    LOG_WARNING("the limit of open files could not be raised");
}

StatusOr<ServingModel> LoadModel(const ConductorConfig& config) {
  ASSIGN_OR_RETURN(const model::ModelSource source,
                   model::ParseModelSource(config.model));
  model::HubOptions hub = model::HubOptionsFromEnvironment();
  if (!config.download_dir.empty()) hub.cache_folder = config.download_dir;
  hub.weights = false;
  ASSIGN_OR_RETURN(const std::string folder, model::ResolveModel(source, hub));
  std::vector<std::string> names = config.served_model_names;
  if (names.empty()) names.push_back(model::DefaultModelName(source));
  return ServingModel::Load(folder, std::move(names), config.max_model_len);
}

ConductorCoreConfig CoreConfigOf(const ConductorConfig& config) {
  char host[256] = "conductor";
  gethostname(host, sizeof(host) - 1);
  ConductorCoreConfig core;
  core.conductor_id = fmt::format("{}-{}", host, getpid());
  core.incarnation = SystemRandom64();
  core.seed = SystemRandom64();
  core.max_requests = static_cast<uint32_t>(config.max_requests);
  core.max_waiting_requests =
      static_cast<uint32_t>(config.max_waiting_requests);
  return core;
}

Status WriteReadyFile(const std::string& path, const std::string& address) {
  if (path.empty()) return OkStatus();
  JsonWriter json;
  json.BeginObject().Field("address", address).EndObject();
  return Annotate(WriteFileAtomically(path, json.Take() + "\n"),
                  "--ready-file");
}

// Waits for SIGTERM or SIGINT.
void WaitForSignal(const sigset_t& signals) {
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  LOG_INFO("draining: {}", strsignal(signal));
}

// A second signal ends the wait.
void Drain(HttpServer& server, int64_t timeout_s, const sigset_t& signals) {
  const TimePoint end =
      Clock::Monotonic().Now() + std::chrono::seconds(timeout_s);
  while (!server.Drain(std::chrono::milliseconds(100))) {
    const timespec no_wait{};
    if (sigtimedwait(&signals, nullptr, &no_wait) > 0) {
      LOG_WARNING("a second signal: running answers are cut");
      return;
    }
    if (Clock::Monotonic().Now() >= end) {
      LOG_WARNING("running answers are cut after {} s", timeout_s);
      return;
    }
  }
}

Status Run(const ConductorConfig& config) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // for all threads to come
  std::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();

  GatewayOptions gateway_options{
      .tokenizer_threads = static_cast<int>(config.tokenizer_threads),
      .request_timeout = config.request_timeout};
  ASSIGN_OR_RETURN(gateway_options.api_keys, LoadApiKeys(config));
  ASSIGN_OR_RETURN(const std::vector<FleetWorker> workers,
                   ParseWorkers(config.workers));
  ASSIGN_OR_RETURN(const ServingModel model, LoadModel(config));

  const scheduling::LeastLoadedPlacement placement;
  const std::unique_ptr<WorkerDialer> dialer = MakeGrpcDialer({});
  const Clock& clock = Clock::Monotonic();
  ASSIGN_OR_RETURN(const std::unique_ptr<FleetBackend> backend,
                   FleetBackend::Start(CoreConfigOf(config), placement, *dialer,
                                       clock, workers));
  Gateway gateway(model, *backend, clock, std::move(gateway_options));
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server,
                   HttpServer::Listen(
                       config.http,
                       [&gateway](HttpRequest request,
                                  std::shared_ptr<HttpExchange> exchange) {
                         gateway.Handle(std::move(request),
                                        std::move(exchange));
                       },
                       Gateway::ErrorPage));
  gateway.SetHttpStats([&server] { return server->stats(); });
  server->Start();
  const std::string address = HostPort(config.host, server->port());
  RETURN_IF_ERROR(WriteReadyFile(config.ready_file, address));
  LOG_INFO("serving {} on http://{} with {} workers", model.names().front(),
           address, workers.size());

  WaitForSignal(signals);
  gateway.StartDraining();
  Drain(*server, config.drain_timeout_s, signals);
  return OkStatus();
}

Status Main(int argc, const char* const* argv) {
  ASSIGN_OR_RETURN(const std::optional<ConductorConfig> config,
                   ParseConductorOptions(argc, argv));
  if (!config) return OkStatus();
  RETURN_IF_ERROR(InitLogging(config->log));
  return Run(*config);
}

}  // namespace
}  // namespace tidepool::conductor

int main(int argc, char** argv) {
  const tidepool::Status status = tidepool::conductor::Main(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "tidepool-conductor: %s\n",
               std::string(status.message()).c_str());
  return 1;
}
