#include "controller/runtime/leader_elector.h"

#include <algorithm>

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "dataplane/base/check.h"
#include "dataplane/base/log.h"
#include "dataplane/base/notification.h"

namespace tidepool::runtime {

using Verb = LeaderElectorCore::Verb;

std::string UniqueIdentity(std::string_view name) {
  return fmt::format("{}_{:016x}", name, SystemRandom64());
}

LeaderElector::LeaderElector(const LeaderElectorOptions& options,
                             kube::Client& client, const Clock& clock,
                             uint64_t seed, Listener listener)
    : options_(options),
      client_(client),
      clock_(clock),
      listener_(std::move(listener)),
      core_(options, seed),
      leading_until_(TimePoint::min().time_since_epoch().count()) {}

LeaderElector::~LeaderElector() { Stop(); }

void LeaderElector::Start() {
  CHECK(!thread_.joinable());
  thread_ = std::jthread([this](std::stop_token stop) { Run(stop); });
}

void LeaderElector::Stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

bool LeaderElector::IsLeading() const {
  return clock_.Now().time_since_epoch().count() < leading_until_.load();
}

std::optional<uint64_t> LeaderElector::Term() const {
  const uint64_t term = term_.load();
  if (!IsLeading()) return std::nullopt;
  return term;
}

void LeaderElector::Run(std::stop_token stop) {
  while (true) {
    ending_ = stop.stop_requested();
    if (ending_) core_.Stop();
    const auto call = core_.Next(clock_.Now(), UnixSeconds());
    // Before a release others must not be told that we still lead.
    Tell();
    if (call) {
      const StatusOr<LeaseState> result = Perform(*call);
      core_.Ended(*call, clock_.Now(), result);
      Tell();
      if (!result.ok() && result.status().code() != Code::kAborted)
        LOG_INFO("election: {}", MessageOf(result.status()));
      continue;
    }
    if (core_.stopped()) return;
    TimePoint wake = core_.next_wake();
    if (told_) wake = std::min(wake, core_.leading_until());
    Notification stopped;
    const std::stop_callback on_stop(stop, [&] { stopped.Notify(); });
    stopped.WaitFor(wake - clock_.Now());
  }
}

void LeaderElector::Tell() {
  const TimePoint until = core_.leading_until();
  const uint64_t term = core_.term();
  const bool leading = core_.IsLeading(clock_.Now());
  if (told_ && (!leading || *told_ != term)) {
    leading_until_.store(TimePoint::min().time_since_epoch().count());
    told_.reset();
    if (!ending_) LOG_WARNING("no longer the leader");
    if (listener_.stopped) listener_.stopped();
  }
  if (!leading) return;
  if (!told_) {
    // The term first: a reader that sees leadership sees whose.
    term_.store(term);
    terms_total_.fetch_add(1);
  }
  leading_until_.store(until.time_since_epoch().count());
  if (told_) return;
  told_ = term;
  LOG_INFO("leading in term {}", term);
  if (listener_.started) listener_.started(term);
}

StatusOr<LeaseState> LeaderElector::Perform(
    const LeaderElectorCore::Call& call) {
  StatusOr<kube::Json> lease = Internal("no call");
  if (call.verb == Verb::kGet) {
    lease = client_.Get(kube::kLease, options_.lease);
  } else {
    const double now = UnixSeconds();
    if (call.acquires) acquired_unix_ = now;
    kube::Json object = kube::Skeleton(kube::kLease, options_.lease);
    kube::Json& spec = object["spec"];
    // One second is the least that the API takes; nobody waits for it.
    spec["leaseDurationSeconds"] =
        call.releases
            ? 1
            : std::chrono::ceil<std::chrono::seconds>(options_.lease_duration)
                  .count();
    if (!call.holder.empty()) spec["holderIdentity"] = call.holder;
    spec["leaseTransitions"] = call.transitions;
    spec["acquireTime"] = kube::FormatMicroTime(acquired_unix_);
    spec["renewTime"] = kube::FormatMicroTime(now);
    if (call.verb == Verb::kCreate) {
      lease = client_.Create(kube::kLease, options_.lease.space, object);
    } else {
      object["metadata"]["resourceVersion"] = call.resource_version;
      lease = client_.Replace(kube::kLease, options_.lease, object);
    }
  }
  RETURN_IF_ERROR(lease.status());
  return ParseLease(*lease);
}

}  // namespace tidepool::runtime
