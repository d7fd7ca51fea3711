#include "dataplane/scheduling/planner.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace tidepool::scheduling {
namespace {

WorkerRole Other(WorkerRole role) {
  return role == WorkerRole::kPrefill ? WorkerRole::kDecode
                                      : WorkerRole::kPrefill;
}

std::string_view NameOf(WorkerRole role) {
  return role == WorkerRole::kPrefill ? "prefill" : "decode";
}

double Of(const PoolPressure& pressure, WorkerRole role) {
  return role == WorkerRole::kPrefill ? pressure.prefill : pressure.decode;
}

uint32_t WithinBounds(const PlannerPool& pool, uint32_t replicas) {
  return std::clamp(replicas, pool.min_replicas,
                    std::max(pool.min_replicas, pool.max_replicas));
}

uint64_t Devices(const PlannerPool& pool, uint32_t replicas) {
  return uint64_t{pool.devices_per_replica} * replicas;
}

const PlannerPool* PoolOf(const FleetView& view,
                          const PlannerInstance& instance) {
  const auto pool =
      std::ranges::find(view.pools, instance.pool, &PlannerPool::name);
  return pool == view.pools.end() ? nullptr : &*pool;
}

bool HasPool(const FleetView& view, WorkerRole role) {
  return std::ranges::find(view.pools, role, &PlannerPool::role) !=
         view.pools.end();
}

// `since` is when `holds` became true without a break; nullopt while false.
void Track(std::optional<TimePoint>& since, bool holds, TimePoint now) {
  if (!holds) {
    since.reset();
  } else if (!since.has_value()) {
    since = now;
  }
}

}  // namespace

std::string_view NameOf(MoveReason reason) {
  switch (reason) {
    case MoveReason::kPrefillPressure:
      return "PrefillPressure";
    case MoveReason::kDecodePressure:
      return "DecodePressure";
    case MoveReason::kBothPressed:
      return "BothPressed";
    case MoveReason::kIdle:
      return "Idle";
    case MoveReason::kWishChanged:
      return "WishChanged";
    case MoveReason::kReturnLent:
      return "ReturnLent";
    case MoveReason::kMinimum:
      return "OutOfBounds";
    case MoveReason::kBudget:
      return "Budget";
    case MoveReason::kFlipTimedOut:
      return "FlipTimedOut";
  }
  return "Unknown";
}

class PlannerCore::Impl {
 public:
  explicit Impl(PlannerConfig config) : config_(config) {}

  void SetConfig(const PlannerConfig& config) { config_ = config; }
  Plan Decide(const FleetView& view, TimePoint now);

 private:
  // How long something about a role has held, without a break.
  struct RoleClock {
    std::optional<TimePoint> hot, cold;
  };
  // One call of Decide.
  struct Turn {
    const FleetView& view;
    TimePoint now;
    std::vector<uint32_t> planned = {};  // same order as view.pools
    Plan plan = {};
  };

  void StartFromWishes(Turn& turn);
  void FitBudget(Turn& turn);
  void EmitScales(Turn& turn, const std::vector<MoveReason>& reasons);
  static void ShrinkFirst(Plan& plan);
  void GiveUpSlowFlips(Turn& turn);
  void Rebalance(Turn& turn);
  bool Flip(Turn& turn, WorkerRole to, MoveReason reason);
  bool Grow(Turn& turn, WorkerRole role, MoveReason reason);
  bool ShrinkToWish(Turn& turn, WorkerRole role);
  bool ReturnLent(Turn& turn, bool all_cold);

  bool StillGrowing(const Turn& turn, size_t index) const;
  bool MayLeave(const Turn& turn, const PlannerInstance& instance) const;
  uint64_t PlannedDevices(const Turn& turn) const;
  uint32_t Ready(const Turn& turn, WorkerRole role) const;
  double PressureWithOneLess(const Turn& turn, WorkerRole role) const;
  bool Lasted(const std::optional<TimePoint>& since, TimePoint now) const {
    return since.has_value() && now - *since >= config_.stabilization;
  }
  RoleClock& ClockOf(WorkerRole role) {
    return role == WorkerRole::kPrefill ? prefill_ : decode_;
  }

  PlannerConfig config_;
  RoleClock prefill_, decode_;
  // Since when an instance has been on its way to its planned role.
  absl::flat_hash_map<std::string, TimePoint> flipping_;
  // Of the last move, or the last turn in which a flip was under way.
  std::optional<TimePoint> last_move_;
  std::optional<TimePoint> last_turn_;
  // When each pool was last made to grow; at most one entry for each pool.
  absl::flat_hash_map<std::string, TimePoint> grew_;
};

// ---- Replicas ----

void PlannerCore::Impl::StartFromWishes(Turn& turn) {
  const bool is_planned = config_.policy != RebalancingPolicy::kOff &&
                          config_.accelerator_budget.has_value();
  std::vector<MoveReason> reasons;
  for (const PlannerPool& pool : turn.view.pools) {
    const bool restart = !is_planned || !pool.planned_replicas.has_value() ||
                         pool.planned_from != pool.wished_replicas;
    const uint32_t base =
        restart ? pool.wished_replicas : *pool.planned_replicas;
    turn.planned.push_back(WithinBounds(pool, base));
    reasons.push_back(restart || base < pool.wished_replicas
                          ? MoveReason::kWishChanged
                          : MoveReason::kMinimum);
  }
  absl::erase_if(grew_, [&](const auto& entry) {
    return std::ranges::find(turn.view.pools, entry.first,
                             &PlannerPool::name) == turn.view.pools.end();
  });
  FitBudget(turn);
  EmitScales(turn, reasons);
}

// Takes replicas from the pool that has the most above what it is entitled to
// until the sum fits. The budget wins over the minimum. What has room goes back
// to its wish: nothing else would, since only pressure makes pools grow.
void PlannerCore::Impl::FitBudget(Turn& turn) {
  if (!config_.accelerator_budget.has_value()) return;
  const std::vector<PlannerPool>& pools = turn.view.pools;
  const uint64_t budget = *config_.accelerator_budget;
  const std::vector<uint32_t> before = turn.planned;
  uint64_t total = PlannedDevices(turn);
  for (; total > budget; total = PlannedDevices(turn)) {
    size_t victim = pools.size();
    const auto key = [&](size_t i) {
      const uint32_t planned = turn.planned[i];
      return std::tuple(planned > pools[i].min_replicas,
                        planned > pools[i].wished_replicas,
                        Devices(pools[i], planned));
    };
    for (size_t i = 0; i < pools.size(); ++i) {
      if (turn.planned[i] == 0 || pools[i].devices_per_replica == 0) continue;
      if (victim == pools.size() || key(i) > key(victim)) victim = i;
    }
    // In one step as far as the victim stays above its minimum.
    const PlannerPool& pool = pools[victim];
    const uint64_t excess = total - budget;
    const uint32_t floor =
        turn.planned[victim] > pool.min_replicas ? pool.min_replicas : 0;
    const uint64_t wanted = 1 + (excess - 1) / pool.devices_per_replica;
    const auto step = static_cast<uint32_t>(
        std::min<uint64_t>({wanted, turn.planned[victim] - floor,
                            std::max(1u, turn.planned[victim] / 2)}));
    turn.planned[victim] -= step;
  }
  // What was taken before something larger had to go may fit after all, or a
  // pool would grow into that room and be cut for ever.
  const auto fill = [&](size_t i, uint32_t limit) {
    if (turn.planned[i] >= limit) return;
    const uint64_t devices = pools[i].devices_per_replica;
    const uint32_t missing = limit - turn.planned[i];
    const auto more = static_cast<uint32_t>(
        devices == 0 ? missing
                     : std::min<uint64_t>(missing, (budget - total) / devices));
    turn.planned[i] += more;
    total += more * devices;
  };
  for (size_t i = 0; i < pools.size(); ++i) fill(i, pools[i].min_replicas);
  for (size_t i = 0; i < pools.size(); ++i)
    fill(i, WithinBounds(pools[i], pools[i].wished_replicas));
  for (size_t i = 0; i < pools.size(); ++i) fill(i, before[i]);
}

void PlannerCore::Impl::EmitScales(Turn& turn,
                                   const std::vector<MoveReason>& reasons) {
  for (size_t i = 0; i < turn.view.pools.size(); ++i) {
    const PlannerPool& pool = turn.view.pools[i];
    const uint32_t to = turn.planned[i];
    if (pool.planned_replicas == to &&
        pool.planned_from == pool.wished_replicas) {
      continue;
    }
    const uint32_t from = pool.planned_replicas.value_or(0);
    const bool cut =
        to < std::min(pool.wished_replicas,
                      pool.planned_replicas.value_or(pool.wished_replicas)) &&
        to < pool.max_replicas;
    turn.plan.moves.push_back(
        {.scale = ScalePool{.pool = pool.name, .from = from, .to = to},
         .reason = cut ? MoveReason::kBudget : reasons[i],
         .explanation = fmt::format(
             "{}: {} replicas wished, {} planned (min {}, max {}{})", pool.name,
             pool.wished_replicas, to, pool.min_replicas, pool.max_replicas,
             config_.accelerator_budget.has_value()
                 ? fmt::format(", budget {} devices",
                               *config_.accelerator_budget)
                 : "")});
  }
}

uint64_t PlannerCore::Impl::PlannedDevices(const Turn& turn) const {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  uint64_t total = 0;
  for (size_t i = 0; i < turn.planned.size(); ++i) {
    const uint64_t devices = Devices(turn.view.pools[i], turn.planned[i]);
    total = devices > kMax - total ? kMax : total + devices;
  }
  return total;
}

void PlannerCore::Impl::ShrinkFirst(Plan& plan) {
  std::ranges::stable_partition(plan.moves, [](const Move& move) {
    return move.scale.has_value() && move.scale->to <= move.scale->from;
  });
}

// ---- Flips ----

void PlannerCore::Impl::GiveUpSlowFlips(Turn& turn) {
  absl::flat_hash_set<std::string_view> under_way;
  for (const PlannerInstance& instance : turn.view.instances) {
    if (!instance.role.has_value() || instance.terminating) continue;
    if (*instance.role == instance.planned_role) continue;
    under_way.insert(instance.id);
    const auto [it, started] = flipping_.try_emplace(instance.id, turn.now);
    if (turn.now - it->second < config_.flip_timeout) continue;
    it->second = turn.now;  // the way back has as long
    turn.plan.moves.push_back(
        {.flip = FlipRole{.instance = instance.id, .to = *instance.role},
         .reason = MoveReason::kFlipTimedOut,
         .explanation = fmt::format(
             "{} did not become {} within {:.0f} s: it stays {}", instance.id,
             NameOf(instance.planned_role),
             Seconds(config_.flip_timeout).count(), NameOf(*instance.role))});
  }
  absl::erase_if(flipping_, [&](const auto& entry) {
    return !under_way.contains(entry.first);
  });
}

uint32_t PlannerCore::Impl::Ready(const Turn& turn, WorkerRole role) const {
  return static_cast<uint32_t>(
      std::ranges::count_if(turn.view.instances, [&](const auto& instance) {
        return instance.ready && instance.role == role &&
               instance.planned_role == role && !instance.switching &&
               !instance.terminating;
      }));
}

double PlannerCore::Impl::PressureWithOneLess(const Turn& turn,
                                              WorkerRole role) const {
  const uint32_t ready = Ready(turn, role);
  if (ready <= 1) return kPressureMax;
  return Of(turn.plan.pressure, role) * ready / (ready - 1);
}

bool PlannerCore::Impl::MayLeave(const Turn& turn,
                                 const PlannerInstance& instance) const {
  if (!instance.ready || instance.terminating || instance.switching ||
      instance.role != instance.planned_role) {
    return false;
  }
  const PlannerPool* pool = PoolOf(turn.view, instance);
  if (pool == nullptr) return false;
  if (pool->role != instance.planned_role) return true;  // it goes home
  if (!pool->lendable) return false;
  // The pool keeps its minimum in its own role.
  const auto kept = std::ranges::count_if(
      turn.view.instances, [&](const PlannerInstance& other) {
        return other.pool == pool->name && !other.terminating &&
               other.planned_role == pool->role;
      });
  return kept > pool->min_replicas;
}

// The instance that has the least to finish, one on loan before others.
bool PlannerCore::Impl::Flip(Turn& turn, WorkerRole to, MoveReason reason) {
  const WorkerRole from = Other(to);
  // It would return at once.
  if (!HasPool(turn.view, to)) return false;
  if (PressureWithOneLess(turn, from) >= config_.high) return false;
  const PlannerInstance* best = nullptr;
  const auto key = [&](const PlannerInstance& instance) {
    // Those that come home first.
    return std::tuple(PoolOf(turn.view, instance)->role != to,
                      instance.running_requests + instance.waiting_requests,
                      instance.queued_prefill_tokens,
                      std::string_view(instance.id));
  };
  for (const PlannerInstance& instance : turn.view.instances) {
    if (instance.role != from || !MayLeave(turn, instance)) continue;
    if (best == nullptr || key(instance) < key(*best)) best = &instance;
  }
  if (best == nullptr) return false;
  turn.plan.moves.push_back(
      {.flip = FlipRole{.instance = best->id, .to = to},
       .reason = reason,
       .explanation = fmt::format(
           "{} of {} becomes {}: prefill pressure {:.2f}, decode {:.2f}",
           best->id, best->pool, NameOf(to), turn.plan.pressure.prefill,
           turn.plan.pressure.decode)});
  return true;
}

// A role that no pool has any more is left at once.
bool PlannerCore::Impl::ReturnLent(Turn& turn, bool all_cold) {
  for (const PlannerInstance& instance : turn.view.instances) {
    const PlannerPool* pool = PoolOf(turn.view, instance);
    const WorkerRole role = instance.planned_role;
    if (pool == nullptr || pool->role == role || !MayLeave(turn, instance))
      continue;
    if (HasPool(turn.view, role) &&
        (!all_cold || PressureWithOneLess(turn, role) >= config_.low)) {
      continue;
    }
    turn.plan.moves.push_back(
        {.flip = FlipRole{.instance = instance.id, .to = pool->role},
         .reason = MoveReason::kReturnLent,
         .explanation = fmt::format("{} returns to {}: nothing presses",
                                    instance.id, pool->name)});
    return true;
  }
  return false;
}

// ---- Growing and shrinking ----

bool PlannerCore::Impl::StillGrowing(const Turn& turn, size_t index) const {
  const PlannerPool& pool = turn.view.pools[index];
  const auto grew = grew_.find(pool.name);
  if (grew == grew_.end() || turn.now - grew->second >= config_.growth_patience)
    return false;
  const auto ready = std::ranges::count_if(
      turn.view.instances, [&](const PlannerInstance& instance) {
        return instance.pool == pool.name && instance.ready &&
               !instance.terminating;
      });
  return ready < turn.planned[index];
}

bool PlannerCore::Impl::Grow(Turn& turn, WorkerRole role, MoveReason reason) {
  if (!config_.accelerator_budget.has_value()) return false;
  const uint64_t total = PlannedDevices(turn);
  for (size_t i = 0; i < turn.view.pools.size(); ++i) {
    const PlannerPool& pool = turn.view.pools[i];
    uint32_t& planned = turn.planned[i];
    if (pool.role != role || planned >= pool.max_replicas) continue;
    if (total + pool.devices_per_replica > *config_.accelerator_budget)
      continue;
    if (StillGrowing(turn, i)) continue;
    grew_[pool.name] = turn.now;
    turn.plan.moves.push_back(
        {.scale =
             ScalePool{.pool = pool.name, .from = planned, .to = planned + 1},
         .reason = reason,
         .explanation = fmt::format(
             "{} grows to {}: prefill pressure {:.2f}, decode {:.2f}, {} of {} "
             "devices planned",
             pool.name, planned + 1, turn.plan.pressure.prefill,
             turn.plan.pressure.decode, total + pool.devices_per_replica,
             *config_.accelerator_budget)});
    ++planned;
    return true;
  }
  return false;
}

bool PlannerCore::Impl::ShrinkToWish(Turn& turn, WorkerRole role) {
  if (PressureWithOneLess(turn, role) >= config_.low) return false;
  for (size_t i = 0; i < turn.view.pools.size(); ++i) {
    const PlannerPool& pool = turn.view.pools[i];
    uint32_t& planned = turn.planned[i];
    if (pool.role != role || planned <= pool.min_replicas ||
        planned <= pool.wished_replicas) {
      continue;
    }
    turn.plan.moves.push_back(
        {.scale =
             ScalePool{.pool = pool.name, .from = planned, .to = planned - 1},
         .reason = MoveReason::kIdle,
         .explanation = fmt::format("{} goes back to {}: {} pressure {:.2f}",
                                    pool.name, planned - 1, NameOf(role),
                                    Of(turn.plan.pressure, role))});
    --planned;
    return true;
  }
  return false;
}

// ---- Decisions ----

void PlannerCore::Impl::Rebalance(Turn& turn) {
  const PoolPressure& pressure = turn.plan.pressure;
  for (const WorkerRole role : {WorkerRole::kPrefill, WorkerRole::kDecode}) {
    Track(ClockOf(role).hot, Of(pressure, role) > config_.high, turn.now);
    Track(ClockOf(role).cold, Of(pressure, role) < config_.low, turn.now);
  }
  const std::string figures =
      fmt::format("prefill pressure {:.2f}, decode {:.2f}", pressure.prefill,
                  pressure.decode);
  if (!flipping_.empty() || !turn.plan.moves.empty()) {
    last_move_ = turn.now;
    turn.plan.explanation = figures + ": a move is under way";
    return;
  }
  if (last_move_.has_value() && turn.now - *last_move_ < config_.cooldown) {
    turn.plan.explanation = figures + ": cooling down after the last move";
    turn.plan.decide_again = *last_move_ + config_.cooldown;
    return;
  }
  const bool all_cold =
      Lasted(prefill_.cold, turn.now) && Lasted(decode_.cold, turn.now);
  if (ReturnLent(turn, all_cold)) return;
  for (const WorkerRole hot : {WorkerRole::kPrefill, WorkerRole::kDecode}) {
    if (!Lasted(ClockOf(hot).hot, turn.now)) continue;
    const MoveReason reason = hot == WorkerRole::kPrefill
                                  ? MoveReason::kPrefillPressure
                                  : MoveReason::kDecodePressure;
    const bool other_cold = Lasted(ClockOf(Other(hot)).cold, turn.now);
    const bool both = Lasted(ClockOf(Other(hot)).hot, turn.now);
    if (other_cold && Flip(turn, hot, reason)) return;
    // The more pressed of two grows first.
    if (both && Of(pressure, Other(hot)) > Of(pressure, hot) &&
        Grow(turn, Other(hot), MoveReason::kBothPressed)) {
      return;
    }
    if (Grow(turn, hot, both ? MoveReason::kBothPressed : reason)) return;
    turn.plan.explanation =
        fmt::format("{}: {} is pressed, but no instance can be spared and {}",
                    figures, NameOf(hot),
                    config_.accelerator_budget.has_value()
                        ? "budget or maximum leave no room to grow"
                        : "no budget is stated to grow within");
    return;
  }
  for (const WorkerRole role : {WorkerRole::kPrefill, WorkerRole::kDecode}) {
    if (Lasted(ClockOf(role).cold, turn.now) && ShrinkToWish(turn, role))
      return;
  }
  turn.plan.explanation = figures + ": steady";
}

Plan PlannerCore::Impl::Decide(const FleetView& view, TimePoint now) {
  Turn turn{.view = view, .now = now};
  turn.plan.decide_again = now + std::chrono::seconds(1);
  turn.plan.pressure = Pressure(view, config_);
  // What held then may not have held since.
  if (last_turn_.has_value() && now - *last_turn_ > config_.statistics_age_max)
    prefill_ = decode_ = {};
  last_turn_ = now;
  StartFromWishes(turn);
  GiveUpSlowFlips(turn);
  if (config_.policy == RebalancingPolicy::kOff) {
    prefill_ = decode_ = {};
    turn.plan.explanation = "rebalancing is off: replicas follow the wish";
  } else if (!view.statistics_at.has_value() ||
             now - *view.statistics_at > config_.statistics_age_max) {
    prefill_ = decode_ = {};
    turn.plan.explanation =
        "no recent statistics from any conductor: replicas stay as planned";
  } else {
    Rebalance(turn);
  }
  if (!turn.plan.moves.empty()) {
    ShrinkFirst(turn.plan);
    last_move_ = now;
    turn.plan.explanation = turn.plan.moves.front().explanation;
  }
  return std::move(turn.plan);
}

PlannerCore::PlannerCore(PlannerConfig config)
    : impl_(std::make_unique<Impl>(config)) {}
PlannerCore::~PlannerCore() = default;

Plan PlannerCore::Decide(const FleetView& view, TimePoint now) {
  return impl_->Decide(view, now);
}

void PlannerCore::SetConfig(const PlannerConfig& config) {
  impl_->SetConfig(config);
}

}  // namespace tidepool::scheduling
