#include "dataplane/worker/worker_shell.h"

#include <grpcpp/server_builder.h>

#include <utility>

#include "dataplane/base/log.h"
#include "dataplane/base/random.h"
#include "dataplane/base/socket_address.h"
#include "dataplane/worker/worker_shell_engine.h"
#include "dataplane/worker/worker_shell_health.h"
#include "dataplane/worker/worker_shell_metrics.h"

namespace tidepool::worker {

namespace {

constexpr size_t kMaxSessions = 64;
constexpr size_t kMaxQueuedMessages = 4096;
constexpr size_t kMaxPeerCalls = 4096;
// A prompt of a million tokens, and room to spare.
constexpr int kMaxMessageBytes = 16 << 20;
constexpr Duration kCloseTimeout = std::chrono::seconds(1);

}  // namespace

WorkerShell::WorkerShell(const WorkerOptions& options,
                         std::function<void(Status)> on_failed)
    : options_(options),
      on_failed_(std::move(on_failed)),
      sessions_({.on_message =
                     [this](uint64_t session, wire::SessionRequest message) {
                       return runtime_.load()->OnSessionMessage(
                           session, std::move(message));
                     },
                 .on_closed =
                     [this](uint64_t session) {
                       runtime_.load()->OnSessionClosed(session);
                     }},
                kMaxSessions, kMaxQueuedMessages),
      peer_service_(
          security_,
          [this](IncomingCallId call, PeerRequest request) {
            WorkerRuntime* const runtime = runtime_.load();
            return runtime != nullptr &&
                   runtime->OnPeerCall(call, std::move(request));
          },
          kMaxPeerCalls),
      worker_service_(
          security_, sessions_, [this] { return Describe(); },
          [this](const wire::SetRoleRequest& request,
                 const WorkerService::RoleReply& reply) {
            SetRole(request, reply);
          }) {
  description_.set_incarnation(SystemRandom64() | 1);
  description_.set_role(options.role == "prefill" ? wire::ROLE_PREFILL
                                                  : wire::ROLE_DECODE);
  description_.mutable_role_state()->set_role(description_.role());
  description_.set_name(options.name);
  description_.set_served_model(options.served_model_name);
}

StatusOr<std::unique_ptr<WorkerShell>> WorkerShell::Start(
    const WorkerOptions& options, std::function<void(Status)> on_failed) {
  std::unique_ptr<WorkerShell> shell(
      new WorkerShell(options, std::move(on_failed)));
  RETURN_IF_ERROR(shell->Listen());
  shell->loader_ = std::jthread(
      [shell = shell.get()](std::stop_token stop) { shell->Load(stop); });
  return shell;
}

Status WorkerShell::Listen() {
  ASSIGN_OR_RETURN(policy_, transfer::ParseTransportPolicy(options_.transport));
  ASSIGN_OR_RETURN(security_,
                   rpc::Security::Load(options_, rpc::Component::kWorker,
                                       static_cast<int64_t>(UnixSeconds())));
  security_.WarnIfExposed("the control port", options_.host);
  ASSIGN_OR_RETURN(messenger_,
                   transfer::CreateSocketMessenger(
                       {.host = options_.host,
                        .port = static_cast<uint16_t>(options_.transfer_port),
                        .incarnation = Describe().incarnation()}));
  // A name is looked up here, once, and not where senders must not wait.
  const std::string bound = messenger_->address();
  ASSIGN_OR_RETURN(const auto advertised,
                   ResolveAddress(options_.advertise_host,
                                  static_cast<uint16_t>(std::stoi(
                                      bound.substr(bound.rfind(':') + 1)))));
  transfer_address_ = ToText(advertised);
  if (options_.metrics_port >= 0) {
    auto http = HttpEndpoints::Start(
        options_.host, static_cast<uint16_t>(options_.metrics_port),
        [this](std::string_view path) { return Answer(path); });
    if (!http.ok()) return Annotate(http.status(), "--metrics-port");
    http_ = *std::move(http);
  }

  grpc::ServerBuilder builder;
  const std::string address =
      HostPort(options_.host, static_cast<uint16_t>(options_.port));
  // Two servers must not share a port by accident.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A conductor that vanished without a word is noticed.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddListeningPort(
      address,
      security_.ServerCredentials({rpc::Component::kConductor,
                                   rpc::Component::kWorker,
                                   rpc::Component::kController}),
      &control_port_);
  builder.RegisterService(&worker_service_);
  builder.RegisterService(&peer_service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || control_port_ == 0)
    return MakeError(Code::kAlreadyExists,
                     "listening on {} failed: the port is in use, or the "
                     "address is not this host's",
                     address);
  const MutexLock lock(&mutex_);
  description_.set_transfer_address(transfer_address_);
  return OkStatus();
}

std::string WorkerShell::control_address() const {
  return HostPort(options_.advertise_host,
                  static_cast<uint16_t>(control_port_));
}

std::string WorkerShell::transfer_address() const { return transfer_address_; }

std::optional<uint16_t> WorkerShell::metrics_port() const {
  if (http_ == nullptr) return std::nullopt;
  return http_->port();
}

wire::DescribeResponse WorkerShell::Describe() const {
  wire::DescribeResponse description;
  {
    const MutexLock lock(&mutex_);
    description = description_;
  }
  if (const WorkerRuntime* const runtime = runtime_.load()) {
    *description.mutable_role_state() = runtime->snapshot().role;
    description.set_role(description.role_state().role());
  }
  return description;
}

void WorkerShell::SetRole(const wire::SetRoleRequest& request,
                          const WorkerService::RoleReply& reply) {
  WorkerRuntime* const runtime = runtime_.load();
  if (runtime == nullptr)
    return reply(FailedPrecondition("the model is still loading"));
  if (!runtime->SetRole(request, reply))
    reply(Unavailable("too many messages wait here"));
}

HttpAnswer WorkerShell::Answer(std::string_view path) const {
  const wire::DescribeResponse self = Describe();
  if (path == "/ready") return ReadyAnswer(self);
  std::optional<WorkerSnapshot> worker;
  if (const WorkerRuntime* const runtime = runtime_.load())
    worker = runtime->snapshot();
  if (path == "/health")
    return HealthAnswer(worker, std::chrono::seconds(options_.step_timeout_s),
                        Clock::Monotonic().Now());
  if (path == "/metrics")
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = RenderMetrics(
                {.loaded = self.ready() ? 1.0 : self.load_progress(),
                 .worker = std::move(worker),
                 .transfer = messenger_->stats()})};
  return {.status = 404,
          .body = "there are /metrics, /health and /ready here\n"};
}

void WorkerShell::Load(std::stop_token stop) {
  const Status status = LoadAndServe(stop);
  if (!status.ok() && !stop.stop_requested()) on_failed_(status);
}

Status WorkerShell::LoadAndServe(std::stop_token stop) {
  ASSIGN_OR_RETURN(LoadedEngine loaded,
                   LoadEngine(options_, stop, [this](float progress) {
                     const MutexLock lock(&mutex_);
                     description_.set_load_progress(progress);
                   }));
  wire::DescribeResponse description = Describe();
  description.MergeFrom(loaded.description);
  description.set_ready(true);
  description.clear_load_progress();
  ASSIGN_OR_RETURN(
      transfer::MemoryRegion region,
      messenger_->RegisterMemory(loaded.pool.memory(), loaded.pool.fd()));
  runtime_owner_ = std::make_unique<WorkerRuntime>(
      std::move(loaded), description, policy_, *messenger_, std::move(region),
      sessions_, peer_service_, security_);
  runtime_.store(runtime_owner_.get());
  {
    const MutexLock lock(&mutex_);
    description.set_draining(description_.draining());
    description_ = description;
  }
  if (description.draining()) runtime_owner_->Drain(Duration(0));
  LOG_INFO("ready: {} worker at {}", options_.role, control_address());
  return OkStatus();
}

void WorkerShell::Drain(Duration timeout) {
  {
    const MutexLock lock(&mutex_);
    description_.set_draining(true);
  }
  if (WorkerRuntime* const runtime = runtime_.load()) runtime->Drain(timeout);
}

bool WorkerShell::WaitUntilIdle(Duration timeout) {
  WorkerRuntime* const runtime = runtime_.load();
  return runtime == nullptr || runtime->idle().WaitFor(timeout);
}

WorkerShell::~WorkerShell() {
  loader_.request_stop();
  if (loader_.joinable()) loader_.join();
  sessions_.EndAll(Unavailable("the worker is going away"));
  peer_service_.FailAll(Unavailable("the worker is going away"));
  // Lets what was sent arrive; what is not read by then is cut off.
  if (server_ != nullptr) {
    server_->Shutdown(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::microseconds>(kCloseTimeout));
    server_.reset();
  }
  http_.reset();
  runtime_owner_.reset();
}

}  // namespace tidepool::worker
