// tidepool-conductor: HTTP in front, workers behind.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>

#include "dataplane/base/file.h"
#include "dataplane/base/random.h"
#include "dataplane/base/socket_address.h"
#include "dataplane/conductor/conductor_options.h"
#include "dataplane/conductor/fleet_report.h"
#include "dataplane/conductor/fleet_service.h"
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

Status WriteReadyFile(const ConductorConfig& config, const std::string& address,
                      const ControlServer* control) {
  const std::string& path = config.ready_file;
  if (path.empty()) return OkStatus();
  JsonWriter json;
  json.BeginObject().Field("address", address);
  if (control != nullptr)
    json.Field("control_address",
               HostPort(config.control_host, control->port()));
  json.EndObject();
  return Annotate(WriteFileAtomically(path, json.Take() + "\n"),
                  "--ready-file");
}

// Whether a signal comes within `timeout_s`.
bool SignalComes(const sigset_t& signals, int64_t timeout_s = 0) {
  const timespec timeout{.tv_sec = timeout_s};
  return sigtimedwait(&signals, nullptr, &timeout) > 0;
}

// A model may have to be downloaded. Nobody waits for anything meanwhile, so
// that a signal ends the process.
StatusOr<ServingModel> LoadModelUnlessSignalled(const ConductorConfig& config,
                                                const sigset_t& signals) {
  std::future<StatusOr<ServingModel>> model =
      std::async(std::launch::async, [&config] { return LoadModel(config); });
  while (model.wait_for(std::chrono::milliseconds(50)) !=
         std::future_status::ready) {
    if (!SignalComes(signals)) continue;
    LOG_INFO("bye, before the model was loaded");
    std::_Exit(0);
  }
  return model.get();
}

// While a model is downloaded: who looks whether this lives shall not end it.
HttpResponse AnswerWithoutModel(std::string_view path) {
  if (path == "/health") return {.content_type = "text/plain"};
  constexpr std::string_view kReason = "the model is loading";
  if (path != "/ready") return Gateway::ErrorPage(503, kReason);
  JsonWriter json;
  json.BeginObject().Field("ready", false).Field("reason", kReason).EndObject();
  return {.status = 503, .body = json.Take()};
}

// Waits for SIGTERM or SIGINT.
void WaitForSignal(const sigset_t& signals) {
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  LOG_INFO("draining: {}", strsignal(signal));
}

// Requests still come until everybody knows that they should go elsewhere; then
// those that run get their time. A second signal ends either wait.
void Drain(HttpServer& server, const ConductorConfig& config,
           const sigset_t& signals) {
  bool signalled = SignalComes(signals, config.drain_delay_s);
  const TimePoint end =
      Clock::Monotonic().Now() + std::chrono::seconds(config.drain_timeout_s);
  while (!signalled && !server.Drain(std::chrono::milliseconds(100))) {
    if (Clock::Monotonic().Now() >= end) {
      LOG_WARNING("running answers are cut after {} s", config.drain_timeout_s);
      return;
    }
    signalled = SignalComes(signals);
  }
  if (signalled) LOG_WARNING("a second signal: running answers are cut");
}

// Null if there is nothing to discover.
StatusOr<std::unique_ptr<DnsWatcher>> StartDiscovery(
    const ConductorConfig& config, FleetBackend& backend) {
  ASSIGN_OR_RETURN(std::vector<DnsName> names, ParseDiscover(config.discover));
  if (names.empty()) return std::unique_ptr<DnsWatcher>();
  return DnsWatcher::Start(
      std::move(names), {},
      [&backend](size_t name, std::vector<std::string> addresses) {
        backend.OnDiscovered(name, std::move(addresses));
      });
}

// Null without a control port.
StatusOr<std::unique_ptr<ControlServer>> StartControl(
    const ConductorConfig& config, const rpc::Security& security,
    const ConductorCoreConfig& core, const FleetBackend& backend,
    const Gateway& gateway, const Clock& clock) {
  if (config.control_port < 0) return std::unique_ptr<ControlServer>();
  security.WarnIfExposed("--control-port", config.control_host);
  return ControlServer::Start(
      {.host = config.control_host,
       .port = static_cast<uint16_t>(config.control_port),
       .security = security},
      clock, [&backend, &gateway, &core] {
        return MakeFleetReport(core.conductor_id, core.incarnation,
                               *backend.Snapshot(), gateway.Report());
      });
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
  ASSIGN_OR_RETURN(const rpc::Security security,
                   rpc::Security::Load(config, rpc::Component::kConductor,
                                       static_cast<int64_t>(UnixSeconds())));
  // Null until there is a model.
  std::atomic<Gateway*> serving = nullptr;
  ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> listening,
                   HttpServer::Listen(
                       config.http,
                       [&serving](HttpRequest request,
                                  std::shared_ptr<HttpExchange> exchange) {
                         if (Gateway* const gateway = serving.load())
                           gateway->Handle(std::move(request),
                                           std::move(exchange));
                         else
                           exchange->Respond(AnswerWithoutModel(request.path));
                       },
                       Gateway::ErrorPage));
  listening->Start();
  ASSIGN_OR_RETURN(const ServingModel model,
                   LoadModelUnlessSignalled(config, signals));

  const scheduling::LeastLoadedPlacement placement;
  const std::unique_ptr<WorkerDialer> dialer =
      MakeGrpcDialer({.security = security});
  const Clock& clock = Clock::Monotonic();
  const ConductorCoreConfig core = CoreConfigOf(config);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<FleetBackend> backend,
      FleetBackend::Start(core, placement, *dialer, clock, workers));
  Gateway gateway(model, *backend, clock, std::move(gateway_options));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<ControlServer> control,
      StartControl(config, security, core, *backend, gateway, clock));
  ASSIGN_OR_RETURN(const std::unique_ptr<DnsWatcher> discovery,
                   StartDiscovery(config, *backend));
  // From here on it ends before what it serves with.
  const std::unique_ptr<HttpServer> server = std::move(listening);
  gateway.SetHttpStats([&server] { return server->stats(); });
  serving = &gateway;
  const std::string address = HostPort(config.host, server->port());
  RETURN_IF_ERROR(WriteReadyFile(config, address, control.get()));
  LOG_INFO("serving {} on http://{} with {} workers and {} names to discover",
           model.names().front(), address, workers.size(),
           config.discover.size());

  WaitForSignal(signals);
  gateway.StartDraining();
  Drain(*server, config, signals);
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
