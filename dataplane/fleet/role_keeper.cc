#include "dataplane/fleet/role_keeper.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "dataplane/fleet/role.h"

namespace tidepool::fleet {
namespace {

namespace wire = worker::v1;

constexpr int64_t kDrainTimeoutMsMax = 24 * 3600 * 1000;  // the worker's bound

bool CanBeAsked(const WorkerReport* worker) {
  return worker != nullptr && worker->connected() &&
         worker->has_description() && worker->description().ready() &&
         !worker->description().draining();
}

// What it is, or is about to be.
wire::Role RoleAheadOf(const wire::DescribeResponse& description) {
  const wire::Role target = description.role_state().target();
  return target != wire::ROLE_UNSPECIFIED ? target : description.role();
}

bool IsOlder(const wire::RoleEpoch& a, const wire::RoleEpoch& b) {
  return std::pair(a.term(), a.sequence()) < std::pair(b.term(), b.sequence());
}

}  // namespace

class RoleKeeper::Impl {
 public:
  explicit Impl(uint64_t term) : term_(term) {}

  std::vector<RoleCall> Next(std::span<const RoleWish> wishes, TimePoint now) {
    absl::flat_hash_map<std::string, Entry> kept;
    std::vector<RoleCall> calls;
    for (const RoleWish& wish : wishes) {
      Entry& entry = kept[wish.id];
      if (const auto known = entries_.find(wish.id); known != entries_.end())
        entry = known->second;
      if (!IsDue(wish, entry, now)) continue;
      calls.push_back(MakeCall(wish));
      entry = {.calling = true,
               .asked = calls.back().request,
               .asked_at = now,
               .pause = entry.pause};
    }
    entries_ = std::move(kept);
    return calls;
  }

  void OnAnswer(const std::string& id, const Status& outcome, TimePoint now) {
    const auto known = entries_.find(id);
    if (known == entries_.end() || !known->second.calling) return;
    Entry& entry = known->second;
    entry.calling = false;
    entry.accepted = outcome.ok();
    entry.pause = std::clamp(entry.pause * 2, kPauseMin, kPauseMax);
    entry.not_before = now + entry.pause;
  }

 private:
  struct Entry {
    bool calling = false;
    bool accepted = false;  // `asked` was
    wire::SetRoleRequest asked;
    TimePoint asked_at{};
    Duration pause{};
    TimePoint not_before{};
  };

  bool IsDue(const RoleWish& wish, Entry& entry, TimePoint now) const {
    if (!CanBeAsked(wish.worker) || entry.calling) return false;
    const wire::DescribeResponse& description = wish.worker->description();
    if (RoleAheadOf(description) == ToWire(wish.role)) {
      entry.pause = {};
      entry.accepted = false;
      entry.not_before = {};
      return false;
    }
    const bool heard_before_the_answer =
        entry.accepted && entry.asked.role() == ToWire(wish.role) &&
        entry.asked.incarnation() == description.incarnation() &&
        IsOlder(description.role_state().epoch(), entry.asked.epoch());
    if (heard_before_the_answer && now - entry.asked_at < kEchoPatience)
      return false;
    return now >= entry.not_before;
  }

  RoleCall MakeCall(const RoleWish& wish) {
    RoleCall call{.id = wish.id, .address = wish.worker->address()};
    call.request.set_role(ToWire(wish.role));
    call.request.mutable_epoch()->set_term(term_);
    call.request.mutable_epoch()->set_sequence(++sequence_);
    call.request.set_incarnation(wish.worker->description().incarnation());
    const auto drain_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                              wish.drain_timeout)
                              .count();
    call.request.set_drain_timeout_ms(static_cast<uint32_t>(
        std::clamp<int64_t>(drain_ms, 0, kDrainTimeoutMsMax)));
    return call;
  }

  const uint64_t term_;
  uint64_t sequence_ = 0;
  absl::flat_hash_map<std::string, Entry> entries_;
};

RoleKeeper::RoleKeeper(uint64_t term) : impl_(std::make_unique<Impl>(term)) {}
RoleKeeper::~RoleKeeper() = default;

std::vector<RoleCall> RoleKeeper::Next(std::span<const RoleWish> wishes,
                                       TimePoint now) {
  return impl_->Next(wishes, now);
}

void RoleKeeper::OnAnswer(const std::string& id, const Status& outcome,
                          TimePoint now) {
  impl_->OnAnswer(id, outcome, now);
}

}  // namespace tidepool::fleet
