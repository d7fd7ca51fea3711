// Which work is taken: the role, how it changes, and the end of all work.
#include <algorithm>
#include <vector>

#include "dataplane/worker/worker_core_impl.h"

namespace tidepool::worker {
namespace {

constexpr uint32_t kDrainTimeoutMsMax = 24 * 3600 * 1000;

std::string_view NameOf(wire::Role role) {
  return role == wire::ROLE_PREFILL ? "prefill" : "decode";
}

std::pair<uint64_t, uint64_t> OrderOf(const wire::RoleEpoch& epoch) {
  return {epoch.term(), epoch.sequence()};
}

std::string TextOf(const wire::RoleEpoch& epoch) {
  return fmt::format("{}.{}", epoch.term(), epoch.sequence());
}

Status Validate(const wire::SetRoleRequest& request) {
  if (request.role() != wire::ROLE_PREFILL &&
      request.role() != wire::ROLE_DECODE) {
    return InvalidArgument("role: {} is neither prefill nor decode",
                           static_cast<int>(request.role()));
  }
  if (request.epoch().term() == 0) {
    return InvalidArgument("epoch.term: is 0 or missing");
  }
  if (request.drain_timeout_ms() > kDrainTimeoutMsMax) {
    return InvalidArgument("drain_timeout_ms: {} is more than a day",
                           request.drain_timeout_ms());
  }
  return OkStatus();
}

}  // namespace

StatusOr<wire::RoleState> WorkerCore::Impl::SetRole(
    const wire::SetRoleRequest& request, TimePoint now) {
  RETURN_IF_ERROR(Validate(request));
  if (request.incarnation() != config_.description.incarnation()) {
    return FailedPrecondition("incarnation {:x} is meant, this is {:x}",
                              request.incarnation(),
                              config_.description.incarnation());
  }
  if (draining_) return FailedPrecondition("the process is ending");
  const auto asked = OrderOf(request.epoch());
  const auto last = OrderOf(role_.epoch());
  if (asked < last) {
    return FailedPrecondition("epoch {} is older than {}",
                              TextOf(request.epoch()), TextOf(role_.epoch()));
  }
  const bool switching = role_.target() != wire::ROLE_UNSPECIFIED;
  const wire::Role wanted = switching ? role_.target() : role_.role();
  if (asked == last) {
    if (request.role() == wanted) return role_;
    return FailedPrecondition("epoch {} has set the role to {}, not {}",
                              TextOf(request.epoch()), NameOf(wanted),
                              NameOf(request.role()));
  }
  *role_.mutable_epoch() = request.epoch();
  if (request.role() == role_.role()) {
    role_.clear_target();
    hand_back_at_ = TimePoint::max();
  } else {
    role_.set_target(request.role());
    hand_back_at_ = now + std::chrono::milliseconds(request.drain_timeout_ms());
  }
  TellRole();
  AdvanceRole(now);
  return role_;
}

void WorkerCore::Impl::Drain(Duration timeout, TimePoint now) {
  draining_ = true;
  hand_back_at_ = now + timeout;
  ReportLoad(now);  // so that nothing more is sent here
}

Status WorkerCore::Impl::Accepts(wire::Role work) const {
  if (draining_) return ResourceExhausted("the worker is going away");
  if (role_.target() != wire::ROLE_UNSPECIFIED) {
    return ResourceExhausted("the worker's role changes to {}",
                             NameOf(role_.target()));
  }
  if (role_.role() != work) {
    return ResourceExhausted("the worker's role is {}", NameOf(role_.role()));
  }
  return OkStatus();
}

void WorkerCore::Impl::AdvanceRole(TimePoint now) {
  if (hand_back_at_ <= now) HandBack(now);
  // What has ended may still be cleaned up in the new role: its memory is in
  // quarantine, and owed to nobody.
  if (role_.target() == wire::ROLE_UNSPECIFIED || !live_.empty()) return;
  role_.set_role(role_.target());
  role_.clear_target();
  if (!draining_) hand_back_at_ = TimePoint::max();
  ++stats_.role_switches_total;
  TellRole();
}

void WorkerCore::Impl::HandBack(TimePoint now) {
  hand_back_at_ = TimePoint::max();
  std::vector<TaskId> left;
  for (const auto& [key, id] : live_) left.push_back(id);
  std::ranges::sort(left);
  for (const TaskId id : left) {
    ++stats_.handed_back_total;
    Fail(tasks_.at(id), wire::RequestFailure::KIND_DRAINING,
         "handed back, not done in the time to drain", now);
  }
}

void WorkerCore::Impl::TellRole() {
  for (const auto& [id, session] : sessions_) {
    wire::SessionResponse message;
    *message.mutable_role_state() = role_;
    Send(id, std::move(message));
  }
}

}  // namespace tidepool::worker
