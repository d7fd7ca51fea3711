#include "controller/runtime/informer.h"

#include "controller/kube/json_fields.h"
#include "dataplane/base/check.h"
#include "dataplane/base/log.h"
#include "dataplane/base/random.h"

namespace tidepool::runtime {
namespace internal {

using kube::At;
using kube::TextAt;

kube::ObjectKey KeyOf(const kube::Json& object) {
  const kube::Json& metadata = At(object, "metadata");
  return {TextAt(metadata, "namespace"), TextAt(metadata, "name")};
}

uint64_t VersionOf(const kube::Json& object) {
  const kube::Json& metadata = At(object, "metadata");
  const std::string version = TextAt(metadata, "resourceVersion");
  if (version.empty()) return 0;
  const std::hash<std::string> hash;
  return Mix64(hash(TextAt(metadata, "uid"))) + hash(version) + 1;
}

}  // namespace internal

InformerBase::InformerBase(InformerOptions options)
    : options_(std::move(options)),
      core_(options_.reflector, options_.seed, *this) {}

InformerBase::~InformerBase() { CHECK(!thread_.joinable()); }

void InformerBase::Start(kube::Client& client, const Clock& clock) {
  CHECK(!thread_.joinable());
  thread_ = std::jthread([this, &client, &clock](std::stop_token stop) {
    Run(client, clock, std::move(stop));
  });
}

void InformerBase::Stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void InformerBase::Drive(const std::function<void(ReflectorCore&)>& drive) {
  drive(core_);
  Publish();
}

InformerStats InformerBase::stats() const {
  InformerStats stats;
  {
    const MutexLock lock(&stats_mutex_);
    stats = stats_;
  }
  stats.objects = size();
  stats.rejected_total = rejected_.load();
  return stats;
}

void InformerBase::Publish() {
  {
    const MutexLock lock(&stats_mutex_);
    stats_.lists_total = core_.lists();
    stats_.watches_total = core_.watches();
    stats_.failures_total = core_.failures();
    stats_.heard_at = core_.heard_at();
  }
  if (core_.synced() && !synced_.happened()) synced_.Notify();
}

void InformerBase::CountRejected(const kube::ObjectKey& key,
                                 const Status& why) {
  rejected_.fetch_add(1);
  LOG_WARNING("{} {} is not understood, and what was known of it kept: {}",
              type().kind, key.ToString(), MessageOf(why));
}

void InformerBase::Run(kube::Client& client, const Clock& clock,
                       std::stop_token stop) {
  while (!stop.stop_requested()) {
    const TimePoint now = clock.Now();
    const ReflectorCore::Step step = core_.Next(now);
    const uint64_t failures = core_.failures();
    switch (step.action) {
      case ReflectorCore::Action::kList:
        ListOnce(client, clock, stop);
        break;
      case ReflectorCore::Action::kWatch:
        WatchOnce(client, clock, stop, step);
        break;
      case ReflectorCore::Action::kWait: {
        Notification stopped;
        const std::stop_callback wake(stop, [&] { stopped.Notify(); });
        stopped.WaitFor(step.at - now);
        break;
      }
    }
    Publish();
    if (core_.failures() != failures && !stop.stop_requested())
      LOG_INFO("{}: {}", type().plural, MessageOf(core_.last_error()));
  }
}

void InformerBase::ListOnce(kube::Client& client, const Clock& clock,
                            std::stop_token stop) {
  core_.BeginList();
  const StatusOr<std::string> version =
      client.List(type(),
                  {.space = options_.space,
                   .label_selector = options_.label_selector,
                   .limit = options_.page_objects,
                   .stop = std::move(stop)},
                  [&](kube::Json& object) { core_.Listed(object); });
  core_.EndList(clock.Now(), version);
}

void InformerBase::WatchOnce(kube::Client& client, const Clock& clock,
                             std::stop_token stop,
                             const ReflectorCore::Step& step) {
  core_.BeginWatch(clock.Now());
  const Status ended = client.Watch(type(),
                                    {.space = options_.space,
                                     .label_selector = options_.label_selector,
                                     .resource_version = step.resource_version,
                                     .timeout = step.timeout,
                                     .silence_max = step.silence_max,
                                     .stop = stop},
                                    [&](kube::WatchEvent& event) {
                                      const bool more =
                                          core_.Watched(clock.Now(), event);
                                      Publish();
                                      return more;
                                    });
  core_.EndWatch(clock.Now(), ended);
}

}  // namespace tidepool::runtime
