// tidepool-controller: the operator.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "controller/check_install.h"
#include "controller/check_uninstall.h"
#include "controller/kube/client_config.h"
#include "controller/kube/event_recorder.h"
#include "controller/kube/http_client.h"
#include "controller/options.h"
#include "controller/reconcilers/cluster_cache.h"
#include "controller/reconcilers/family_reconciler.h"
#include "controller/reconcilers/http_fetcher.h"
#include "controller/reconcilers/hub_catalog.h"
#include "controller/reconcilers/rebalancing/fleet_watcher.h"
#include "controller/reconcilers/rebalancing/role_client.h"
#include "controller/reconcilers/tls/keyring.h"
#include "controller/runtime/leading_client.h"
#include "controller/runtime/manager.h"
#include "dataplane/base/log.h"
#include "dataplane/base/random.h"
#include "dataplane/base/version.h"

namespace tidepool::controller {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailed = 1;

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Blocks the signals in this thread, and so in those it starts.
sigset_t BlockTerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// Who and where this process is.
struct Place {
  std::string name, space;
};

Place FindPlace(const kube::ClientConfig& config) {
  Place place{.name = Environment("POD_NAME"),
              .space = Environment("POD_NAMESPACE")};
  if (place.name.empty()) place.name = "tidepool-controller";
  if (place.space.empty()) place.space = config.space;
  if (place.space.empty()) place.space = "default";
  return place;
}

kube::ObjectKey LeaseOf(const ControllerOptions& options, const Place& place) {
  return {.space = options.lease_namespace.empty() ? place.space
                                                   : options.lease_namespace,
          .name = options.lease_name};
}

runtime::ManagerOptions ManagerOptionsOf(const ControllerOptions& options,
                                         const Place& place) {
  runtime::ManagerOptions manager;
  manager.election.lease = LeaseOf(options, place);
  manager.election.identity = runtime::UniqueIdentity(place.name);
  manager.elect = options.leader_elect;
  manager.health_host = options.metrics_host;
  manager.health_port = static_cast<uint16_t>(options.metrics_port);
  return manager;
}

// The parts of the process, in the order in which they depend on each other.
class Controller {
 public:
  static StatusOr<std::unique_ptr<Controller>> Create(
      const ControllerOptions& options) {
    ASSIGN_OR_RETURN(const kube::ClientConfig config,
                     kube::DefaultClientConfig(options.kubeconfig));
    auto controller = std::unique_ptr<Controller>(new Controller);
    kube::HttpClientOptions calls{
        .on_call = [self = controller.get()](const kube::CallRecord& call) {
          self->manager_->CountCall(call);
        }};
    ASSIGN_OR_RETURN(controller->client_,
                     kube::HttpClient::Create(config, calls));
    kube::HttpClientOptions election = std::move(calls);
    election.deadline = runtime::LeaderElectorOptions{}.renew_interval;
    election.connect_timeout = election.deadline;
    election.idle_connections_max = 1;
    ASSIGN_OR_RETURN(controller->election_client_,
                     kube::HttpClient::Create(config, election));
    controller->Assemble(options, FindPlace(config));
    return controller;
  }

  Status Start() { return manager_->Start(); }
  void Stop() { manager_->Stop(); }
  uint16_t metrics_port() const { return manager_->health_port(); }

 private:
  Controller() = default;

  void Assemble(const ControllerOptions& options, const Place& place) {
    const Clock& clock = Clock::Monotonic();
    manager_ = std::make_unique<runtime::Manager>(
        ManagerOptionsOf(options, place), *client_, *election_client_, clock);
    leading_ = std::make_unique<runtime::LeadingClient>(
        *client_, [this] { return manager_->IsLeading(); });
    events_ = std::make_unique<kube::EventRecorder>(
        kube::EventRecorderOptions{.instance = place.name,
                                   .seed = SystemRandom64()},
        *leading_, clock, UnixSeconds);
    cache_ = std::make_unique<reconcilers::ClusterCache>(
        reconcilers::ClusterCacheOptions{.space = options.watch_namespace,
                                         .seed = SystemRandom64()});
    models_ = std::make_unique<reconcilers::HubCatalog>(
        options.hub_endpoint, *fetcher_, *client_, clock,
        [this](const kube::ObjectKey& key) { loop_->queue().Add(key); });
    keyring_ =
        std::make_unique<reconcilers::Keyring>(*leading_, clock, UnixSeconds);
    manager_->AddGauge("tidepool_controller_certificate_expiry_seconds",
                       "Until the first certificate of any fleet ends.",
                       [this]() -> std::optional<double> {
                         const auto left = keyring_->FirstExpiry();
                         if (!left.has_value()) return std::nullopt;
                         return left->count();
                       });
    roles_ = std::make_unique<reconcilers::RoleClient>(*keyring_);
    fleet_ = std::make_unique<reconcilers::FleetWatcher>(
        reconcilers::FleetWatcherOptions{}, *keyring_, clock,
        [this](const kube::ObjectKey& key) { loop_->queue().Add(key); });
    reconciler_ = std::make_unique<reconcilers::FamilyReconciler>(
        reconcilers::ControllerSettings{
            .version = kVersion,
            .image_repository = options.image_repository,
            .space = place.space},
        reconcilers::ReconcilerParts{
            .client = *leading_,
            .cache = *cache_,
            .models = *models_,
            .fleet = *fleet_,
            .roles = *roles_,
            .keyring = *keyring_,
            .events = *events_,
            .clock = clock,
            .unix_seconds = UnixSeconds,
            .random = SystemRandom64,
            .term = [this] { return manager_->Term(); }});
    loop_ = std::make_unique<runtime::ControllerLoop>(
        runtime::ControllerLoopOptions{
            .name = "KVCachePool",
            .threads = static_cast<int>(options.reconcile_threads)},
        *reconciler_, clock);
    cache_->OnChange(
        [this](const kube::ObjectKey& key) { loop_->queue().Add(key); });
    for (runtime::InformerBase* informer : cache_->informers())
      manager_->Add(*informer);
    manager_->Add(*loop_, [this] { return cache_->Families(); });
    manager_->OnLeading(nullptr, [this] { fleet_->FollowNobody(); });
  }

  std::unique_ptr<kube::HttpClient> client_, election_client_;
  std::unique_ptr<runtime::LeadingClient> leading_;
  std::unique_ptr<kube::EventRecorder> events_;
  std::unique_ptr<reconcilers::ClusterCache> cache_;
  std::unique_ptr<reconcilers::Keyring> keyring_;
  std::unique_ptr<reconcilers::RoleClient> roles_;
  std::unique_ptr<reconcilers::FamilyReconciler> reconciler_;
  std::unique_ptr<runtime::ControllerLoop> loop_;
  const std::unique_ptr<reconcilers::HttpFetcher> fetcher_ =
      reconcilers::MakeCurlFetcher();
  // These end before the queue they add to.
  std::unique_ptr<reconcilers::HubCatalog> models_;
  std::unique_ptr<reconcilers::FleetWatcher> fleet_;
  std::unique_ptr<runtime::Manager> manager_;  // ends before what it runs
};

// 0: a controller is at work.
StatusOr<int> RunCheckInstall(const ControllerOptions& options) {
  ASSIGN_OR_RETURN(const kube::ClientConfig config,
                   kube::DefaultClientConfig(options.kubeconfig));
  ASSIGN_OR_RETURN(const std::unique_ptr<kube::HttpClient> client,
                   kube::HttpClient::Create(config));
  ASSIGN_OR_RETURN(
      const std::vector<std::string> lines,
      CheckInstall(*client, {.space = options.watch_namespace,
                             .lease = LeaseOf(options, FindPlace(config)),
                             .pause = [] {
                               std::this_thread::sleep_for(
                                   std::chrono::milliseconds(500));
                             }}));
  for (const std::string& line : lines) fmt::print("{}\n", line);
  return 0;
}

// 0: nothing of ours is left. Tells what is, for whoever reads the Job's log.
StatusOr<int> RunCheckUninstall(const ControllerOptions& options) {
  ASSIGN_OR_RETURN(const kube::ClientConfig config,
                   kube::DefaultClientConfig(options.kubeconfig));
  ASSIGN_OR_RETURN(const std::unique_ptr<kube::HttpClient> client,
                   kube::HttpClient::Create(config));
  ASSIGN_OR_RETURN(const std::vector<std::string> remaining,
                   RemainingResources(*client, options.watch_namespace));
  if (remaining.empty()) return 0;
  fmt::print(stderr, "{}", Refusal(remaining));
  return kExitFailed;
}

// Many threads parse a little now and then: with an arena for each of them, or
// pieces kept back for each or not joined at once, what is free would be more
// than what is in use.
void KeepMemorySmall() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MXFAST, 0);
  mallopt(M_TRIM_THRESHOLD, 256 << 10);
}

// What libraries read before main begins: the C library keeps no pieces back
// for each thread, and GnuTLS, which libcurl brings along, is left alone.
// Starts the program again, once; where that fails it goes on, and is larger.
void SetEnvironment(char** argv) {
  constexpr const char* kTunables = "GLIBC_TUNABLES";
  if (std::getenv(kTunables) != nullptr) return;
  setenv(kTunables, "glibc.malloc.tcache_count=0", 0);
  setenv("GNUTLS_NO_IMPLICIT_INIT", "1", 0);
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(program.c_str(), argv);
}

StatusOr<int> RunController(const ControllerOptions& options) {
  KeepMemorySmall();
  const sigset_t signals = BlockTerminationSignals();
  ASSIGN_OR_RETURN(const std::unique_ptr<Controller> controller,
                   Controller::Create(options));
  RETURN_IF_ERROR(controller->Start());
  LOG_INFO("tidepool-controller {}: metrics and probes on port {}", kVersion,
           controller->metrics_port());
  // What lists and bursts of changes took goes back to the system.
  const timespec trim_interval{.tv_sec = 30, .tv_nsec = 0};
  while (sigtimedwait(&signals, nullptr, &trim_interval) < 0) malloc_trim(0);
  LOG_INFO("ending: the Lease is released");
  controller->Stop();
  LOG_INFO("bye");
  return 0;
}

int Run(const ControllerOptions& options) {
  const StatusOr<int> ended = options.check_install ? RunCheckInstall(options)
                              : options.check_uninstall
                                  ? RunCheckUninstall(options)
                                  : RunController(options);
  if (ended.ok()) return *ended;
  LOG_ERROR("{}", MessageOf(ended.status()));
  return kExitFailed;
}

}  // namespace
}  // namespace tidepool::controller

int main(int argc, char** argv) {
  using namespace tidepool;
  controller::SetEnvironment(argv);
  const auto options = controller::ParseControllerOptions(argc, argv);
  Status status = options.status();
  if (status.ok() && !*options) return 0;
  if (status.ok()) status = InitLogging((*options)->log);
  if (!status.ok()) {
    fmt::print(stderr, "tidepool-controller: {}\n", MessageOf(status));
    return controller::kExitUsage;
  }
  return controller::Run(**options);
}
