#include "controller/runtime/manager.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "controller/runtime/manager_metrics.h"
#include "dataplane/base/check.h"
#include "dataplane/base/http_endpoints.h"
#include "dataplane/base/log.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/notification.h"
#include "dataplane/base/random.h"

namespace tidepool::runtime {
namespace {

HttpAnswer AnswerOf(const Status& probe) {
  if (probe.ok()) return {.body = "ok\n"};
  return {.status = 503, .body = fmt::format("{}\n", MessageOf(probe))};
}

}  // namespace

struct Manager::Impl {
  struct Looped {
    ControllerLoop* loop;
    std::function<std::vector<kube::ObjectKey>()> keys;
  };
  struct Gauge {
    std::string name, help;
    std::function<std::optional<double>()> level;
  };

  Impl(ManagerOptions given, kube::Client& shared, kube::Client& for_election,
       const Clock& time)
      : options(std::move(given)),
        client(shared),
        election_client(for_election),
        clock(time) {}

  Status Start();
  void Stop();
  void Tend(std::stop_token stop);
  void Lead(uint64_t new_term);
  void Follow();
  void ResumeIfDue();
  void EnqueueAll();
  bool Synced() const;
  bool IsLeading() const;
  Status Healthy() const;
  Status Ready() const;
  std::string Metrics() const;
  HttpAnswer Answer(std::string_view path) const;

  const ManagerOptions options;
  kube::Client& client;
  kube::Client& election_client;
  const Clock& clock;
  std::vector<InformerBase*> informers;
  std::vector<Looped> loops;
  std::vector<Gauge> gauges;
  std::function<void(uint64_t)> on_started;
  std::function<void()> on_stopped;
  internal::ManagerMetrics metrics;
  std::atomic<bool> started = false;
  // As an election would have begun: workers that remember this term
  // do not refuse that of whoever is elected later.
  const uint64_t solo_term = static_cast<uint64_t>(UnixSeconds() / 60);

  Mutex mutex;
  bool synced ABSL_GUARDED_BY(mutex) = false;
  bool leading ABSL_GUARDED_BY(mutex) = false;

  std::unique_ptr<LeaderElector> elector;
  std::unique_ptr<HttpEndpoints> health;
  std::jthread tender;  // resync, and the beginning once informers have synced
};

bool Manager::Impl::Synced() const {
  return std::ranges::all_of(
      informers, [](const InformerBase* each) { return each->HasSynced(); });
}

bool Manager::Impl::IsLeading() const {
  return started && (elector == nullptr || elector->IsLeading());
}

// Loops run while both hold; whoever completes the pair begins.
void Manager::Impl::ResumeIfDue() {
  {
    const MutexLock lock(&mutex);
    if (!synced || !leading) return;
  }
  // What happened before this term is in no order of importance.
  for (const Looped& each : loops) each.loop->queue().DeferAll();
  EnqueueAll();
  const MutexLock lock(&mutex);
  if (!leading) return;  // it ended meanwhile
  for (const Looped& each : loops) each.loop->Resume();
}

void Manager::Impl::Lead(uint64_t new_term) {
  if (on_started) on_started(new_term);
  {
    const MutexLock lock(&mutex);
    leading = true;
  }
  ResumeIfDue();
}

void Manager::Impl::Follow() {
  {
    const MutexLock lock(&mutex);
    leading = false;
    for (const Looped& each : loops) each.loop->Pause();
  }
  if (on_stopped) on_stopped();
}

void Manager::Impl::EnqueueAll() {
  for (const Looped& each : loops)
    for (const kube::ObjectKey& key : each.keys())
      each.loop->queue().AddDeferred(key);
}

void Manager::Impl::Tend(std::stop_token stop) {
  Notification stopped;
  const std::stop_callback wake(stop, [&] { stopped.Notify(); });
  for (InformerBase* informer : informers)
    while (!informer->WaitForSync(std::chrono::milliseconds(50)))
      if (stopped.happened()) return;
  {
    const MutexLock lock(&mutex);
    synced = true;
  }
  LOG_INFO("all informers have synced");
  ResumeIfDue();
  while (!stopped.WaitFor(options.resync_interval))
    if (IsLeading()) EnqueueAll();
}

Status Manager::Impl::Healthy() const {
  const TimePoint now = clock.Now();
  for (const Looped& each : loops) {
    const TimePoint oldest = each.loop->oldest_call();
    if (oldest != TimePoint::max() && now - oldest > options.reconcile_max)
      return Internal("a reconciliation of {} has run for {:.0f} s",
                      each.loop->name(), Seconds(now - oldest).count());
  }
  return OkStatus();
}

Status Manager::Impl::Ready() const {
  for (const InformerBase* informer : informers)
    if (!informer->HasSynced())
      return Unavailable("{} have not been listed yet",
                         informer->type().plural);
  return OkStatus();
}

std::string Manager::Impl::Metrics() const {
  internal::ManagerLevels levels{.now = clock.Now(), .leading = IsLeading()};
  if (elector != nullptr) levels.terms_total = elector->terms_total();
  for (const Looped& each : loops) {
    const WorkQueue& queue = each.loop->queue();
    levels.loops.push_back({.name = each.loop->name(),
                            .waiting = queue.waiting(),
                            .delayed = queue.delayed(),
                            .running = queue.running(),
                            .dropped_total = queue.dropped_total()});
  }
  for (const InformerBase* informer : informers)
    levels.informers.push_back(
        {std::string(informer->type().kind), informer->stats()});
  // What followers remember is of another time.
  if (levels.leading)
    for (const Gauge& gauge : gauges)
      if (const std::optional<double> level = gauge.level())
        levels.gauges.push_back({gauge.name, gauge.help, *level});
  return metrics.Text(levels);
}

HttpAnswer Manager::Impl::Answer(std::string_view path) const {
  if (path == "/healthz") return AnswerOf(Healthy());
  if (path == "/readyz") return AnswerOf(Ready());
  if (path == "/metrics")
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = Metrics()};
  return {.status = 404, .body = "there are /healthz, /readyz and /metrics\n"};
}

Status Manager::Impl::Start() {
  CHECK(!started);
  if (options.elect)
    elector = std::make_unique<LeaderElector>(
        options.election, election_client, clock, SystemRandom64(),
        LeaderElector::Listener{
            .started = [this](uint64_t term) { Lead(term); },
            .stopped = [this] { Follow(); }});
  ASSIGN_OR_RETURN(health,
                   HttpEndpoints::Start(
                       options.health_host.empty() ? "::" : options.health_host,
                       options.health_port,
                       [this](std::string_view path) { return Answer(path); }));
  started = true;
  for (const Looped& each : loops)
    each.loop->Start([this] { return IsLeading(); });
  for (InformerBase* informer : informers) informer->Start(client, clock);
  tender = std::jthread([this](std::stop_token stop) { Tend(stop); });
  if (elector != nullptr) {
    elector->Start();
  } else {
    Lead(solo_term);
  }
  return OkStatus();
}

void Manager::Impl::Stop() {
  if (!started) return;
  if (tender.joinable()) {
    tender.request_stop();
    tender.join();
  }
  for (const Looped& each : loops) each.loop->Stop();
  if (elector != nullptr) elector->Stop();
  for (InformerBase* informer : informers) informer->Stop();
  health.reset();
  started = false;
}

Manager::Manager(ManagerOptions options, kube::Client& client,
                 kube::Client& election_client, const Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(options), client, election_client,
                                   clock)) {}

Manager::~Manager() { Stop(); }

void Manager::Add(InformerBase& informer) {
  impl_->informers.push_back(&informer);
}

void Manager::Add(ControllerLoop& loop,
                  std::function<std::vector<kube::ObjectKey>()> keys) {
  loop.set_observer([impl = impl_.get(), name = loop.name()](
                        const Status& status, Duration took) {
    impl->metrics.CountReconcile(name, status.code(), took);
  });
  impl_->loops.push_back({&loop, std::move(keys)});
}

void Manager::OnLeading(std::function<void(uint64_t term)> started,
                        std::function<void()> stopped) {
  impl_->on_started = std::move(started);
  impl_->on_stopped = std::move(stopped);
}

void Manager::AddGauge(std::string name, std::string help,
                       std::function<std::optional<double>()> level) {
  impl_->gauges.push_back({std::move(name), std::move(help), std::move(level)});
}

void Manager::CountCall(const kube::CallRecord& call) {
  impl_->metrics.CountCall(call);
}

Status Manager::Start() { return impl_->Start(); }
void Manager::Stop() { impl_->Stop(); }
bool Manager::IsLeading() const { return impl_->IsLeading(); }

std::optional<uint64_t> Manager::Term() const {
  if (!impl_->IsLeading()) return std::nullopt;
  if (impl_->elector == nullptr) return impl_->solo_term;
  return impl_->elector->Term();
}

uint16_t Manager::health_port() const {
  return impl_->health == nullptr ? 0 : impl_->health->port();
}

std::string Manager::Metrics() const { return impl_->Metrics(); }

}  // namespace tidepool::runtime
