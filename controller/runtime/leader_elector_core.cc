#include <algorithm>

#include "controller/kube/json_fields.h"
#include "controller/runtime/leader_elector.h"

namespace tidepool::runtime {
namespace {

using kube::At;
using kube::IntegerAt;
using kube::TextAt;

// A Lease that states more is not waited for any longer.
constexpr Duration kDurationMax = std::chrono::minutes(1);
// Between tries to renew.
constexpr Duration kRetryInterval = std::chrono::milliseconds(200);

// Absent numbers are 0. Errors: kInvalidArgument.
StatusOr<int64_t> NumberIn(const kube::Json& spec, const char* field) {
  if (At(spec, field).is_null()) return 0;
  const int64_t number = IntegerAt(spec, field, -1);
  if (number < 0 || number > INT32_MAX)
    return InvalidArgument("spec.{} of the Lease is no number of 31 bits",
                           field);
  return number;
}

}  // namespace

StatusOr<LeaseState> ParseLease(const kube::Json& lease) {
  const kube::Json& spec = At(lease, "spec");
  LeaseState state{
      .resource_version = TextAt(At(lease, "metadata"), "resourceVersion"),
      .holder = TextAt(spec, "holderIdentity")};
  if (state.resource_version.empty())
    return InvalidArgument("the Lease has no metadata.resourceVersion");
  ASSIGN_OR_RETURN(const int64_t seconds,
                   NumberIn(spec, "leaseDurationSeconds"));
  state.duration = std::chrono::seconds(seconds);
  ASSIGN_OR_RETURN(state.transitions, NumberIn(spec, "leaseTransitions"));
  return state;
}

LeaderElectorCore::LeaderElectorCore(const LeaderElectorOptions& options,
                                     uint64_t seed)
    : options_(options), random_(seed) {}

void LeaderElectorCore::Lose() {
  held_ = false;
  leading_until_ = TimePoint::min();
}

void LeaderElectorCore::Stop() {
  stopping_ = true;
  leading_until_ = TimePoint::min();
}

// When somebody other than its holder may take what we saw.
TimePoint LeaderElectorCore::ClaimableAt() const {
  if (!absent_ && (seen_.holder.empty() || seen_.holder == options_.identity))
    return TimePoint::min();
  // A deleted Lease may have a leader that does not know yet; one that was
  // never seen has not.
  if (absent_ && seen_.resource_version.empty()) return TimePoint::min();
  return seen_at_ + std::max(options_.lease_duration,
                             std::min(seen_.duration, kDurationMax));
}

void LeaderElectorCore::Schedule(TimePoint now) {
  const auto poll = std::chrono::duration_cast<Duration>(
      options_.poll_interval * (0.75 + 0.25 * random_.Unit()));
  next_call_ = now + poll;
  if (known_) next_call_ = std::min(next_call_, std::max(now, ClaimableAt()));
}

LeaderElectorCore::Call LeaderElectorCore::Renew(TimePoint now) const {
  return {.verb = Verb::kReplace,
          .holder = options_.identity,
          .resource_version = seen_.resource_version,
          .transitions = term_,
          .sent = now};
}

LeaderElectorCore::Call LeaderElectorCore::Acquire(TimePoint now,
                                                   double unix_seconds) const {
  const auto minutes = static_cast<int64_t>(unix_seconds / 60);
  return {.verb = absent_ ? Verb::kCreate : Verb::kReplace,
          .acquires = true,
          .holder = options_.identity,
          .resource_version = absent_ ? "" : seen_.resource_version,
          .transitions = std::max({seen_.transitions + 1, term_ + 1, minutes}),
          .sent = now};
}

std::optional<LeaderElectorCore::Call> LeaderElectorCore::Next(
    TimePoint now, double unix_seconds) {
  if (stopping_) {
    if (!held_) return std::nullopt;
    Call call = Renew(now);
    call.releases = true;
    call.holder.clear();
    return call;
  }
  // A term that lapsed does not come to life again: what it guards may have
  // been taken for over.
  if (held_ && now >= leading_until_) {
    Lose();
    Schedule(now);
  }
  if (now < next_call_) return std::nullopt;
  if (!known_) return Call{.verb = Verb::kGet, .sent = now};
  if (held_) return Renew(now);
  if (now >= ClaimableAt()) return Acquire(now, unix_seconds);
  return Call{.verb = Verb::kGet, .sent = now};
}

void LeaderElectorCore::Ended(const Call& call, TimePoint now,
                              const StatusOr<LeaseState>& result) {
  if (call.releases) {
    if (result.ok()) seen_ = *result;
    held_ = false;
  } else if (call.verb == Verb::kGet) {
    Observe(now, result);
  } else if (call.acquires) {
    Acquired(call, now, result);
  } else {
    Renewed(call, now, result);
  }
}

void LeaderElectorCore::Observe(TimePoint now,
                                const StatusOr<LeaseState>& result) {
  if (result.status().code() == Code::kNotFound) {
    if (!absent_) seen_at_ = now;
    absent_ = true;
    known_ = true;
    if (held_) {
      // Whoever deleted it took it from us, and others may have it now.
      seen_ = {};
      Lose();
    }
    return Schedule(now);
  }
  if (!result.ok()) {
    next_call_ = now + (held_ ? kRetryInterval : options_.poll_interval);
    return;
  }
  if (absent_ || !known_ ||
      result->resource_version != seen_.resource_version) {
    // What we wrote ourselves and saw confirmed is no news, but waiting longer
    // is never wrong.
    seen_at_ = now;
    seen_ = *result;
  }
  absent_ = false;
  known_ = true;
  if (!held_) return Schedule(now);
  if (seen_.holder != options_.identity || seen_.transitions != term_) {
    Lose();
    return Schedule(now);
  }
  next_call_ = now;  // renew with the version that is
}

void LeaderElectorCore::Renewed(const Call& call, TimePoint now,
                                const StatusOr<LeaseState>& result) {
  if (result.ok()) {
    seen_ = *result;
    seen_at_ = now;
    if (now >= leading_until_) {
      // Answered too late.
      Lose();
      return Schedule(now);
    }
    leading_until_ = call.sent + options_.renew_deadline;
    next_call_ = call.sent + options_.renew_interval;
    return;
  }
  const Code code = result.status().code();
  // The version may have moved on, also by this very call.
  known_ = false;
  next_call_ = now;
  if (code != Code::kAborted && code != Code::kNotFound)
    next_call_ = now + kRetryInterval;
}

void LeaderElectorCore::Acquired(const Call& call, TimePoint now,
                                 const StatusOr<LeaseState>& result) {
  if (!result.ok()) {
    known_ = false;
    const Code code = result.status().code();
    const bool others_won =
        code == Code::kAborted || code == Code::kAlreadyExists;
    next_call_ = others_won ? now : now + options_.poll_interval;
    return;
  }
  absent_ = false;
  known_ = true;
  seen_ = *result;
  seen_at_ = now;
  if (now - call.sent >= options_.renew_deadline) return Schedule(now);
  held_ = true;
  term_ = call.transitions;
  if (stopping_) return;  // only to be released
  leading_until_ = call.sent + options_.renew_deadline;
  next_call_ = call.sent + options_.renew_interval;
}

}  // namespace tidepool::runtime
