// Rebalancing (DESIGN §5): which instances should prefill, which should
// decode, and how many there should be. Pure: the same code decides in the
// controller, in `tidepool serve --elastic`, in the simulator and in tests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/scheduling/placement.h"

namespace tidepool::scheduling {

enum class RebalancingPolicy { kOff, kReactive };

struct PlannerConfig {
  RebalancingPolicy policy = RebalancingPolicy::kReactive;
  // Devices that all pools together may hold, at any moment; nullopt: only
  // flips, replicas stay as wished.
  std::optional<uint32_t> accelerator_budget;

  // 0: not stated; then only queues and occupancy count.
  Duration ttft_slo{}, tbt_slo{};

  // Pressure (see PoolPressure) above `high` in one role while the other is
  // below `low`, both for `stabilization`, moves one instance.
  double high = 0.9, low = 0.6;
  Duration stabilization = std::chrono::seconds(60);
  // No move begins sooner than this after the last one ended.
  Duration cooldown = std::chrono::seconds(15);
  // A flip that has not ended by then is given up: the instance is asked to
  // go back to the role that it has.
  Duration flip_timeout = std::chrono::minutes(5);
  // A pool that grew and whose new replica is not ready does not grow again
  // sooner than this; other pools and flips go on meanwhile.
  Duration growth_patience = std::chrono::minutes(5);
  // Statistics older than this are not acted on.
  Duration statistics_age_max = std::chrono::seconds(10);
};

// A PrefillPool or DecodePool.
struct PlannerPool {
  std::string name;  // unique in one view
  WorkerRole role = WorkerRole::kDecode;
  uint32_t wished_replicas = 0;  // of the user or an autoscaler
  uint32_t min_replicas = 0, max_replicas = 0;
  uint32_t devices_per_replica = 1;
  bool lendable = true;
  // What was planned before, and from which wish: a changed wish starts the
  // plan again from it.
  std::optional<uint32_t> planned_replicas, planned_from;
};

struct PlannerInstance {
  std::string id;    // never reused: a pod's uid
  std::string pool;  // that owns it
  // The plan so far: what it is to be. Its own pool's role unless lent.
  WorkerRole planned_role = WorkerRole::kDecode;
  // What it says it is; nullopt: it cannot be reached.
  std::optional<WorkerRole> role;
  bool switching = false;
  bool ready = false;
  // It counts against the budget, but cannot be chosen.
  bool terminating = false;

  uint64_t queued_prefill_tokens = 0;
  // Prompt tokens that it computes in a second of prefilling, as measured by
  // itself; 0: not measured yet. What cannot be true counts as that.
  double prefill_tokens_per_second = 0;
  uint32_t waiting_requests = 0, running_requests = 0;
  uint32_t max_requests = 0;
  uint32_t pages_total = 0, pages_free = 0;
};

struct FleetView {
  std::vector<PlannerPool> pools;
  std::vector<PlannerInstance> instances;

  // Over all conductors; nullopt: no conductor could be asked.
  std::optional<TimePoint> statistics_at;
  uint32_t waiting_requests = 0;       // not placed yet
  uint32_t waiting_for_decode = 0;     // of those: for room to decode
  uint64_t waiting_prompt_tokens = 0;  // of the others
  // At the SLO's percentile, of the last minute; 0: nothing was measured.
  Duration ttft{}, tbt{};
};

// A closed set: condition reasons, event reasons, metric labels.
enum class MoveReason {
  kPrefillPressure,  // prefill above `high`, decode below `low`
  kDecodePressure,   // the other way round
  kBothPressed,      // flips cannot help: grow
  kIdle,             // both below `low`: back towards what was wished
  // spec.replicas changed: start again from it; or there is room for it again.
  kWishChanged,
  kReturnLent,  // pressure is gone: back to its own pool's role
  kMinimum,     // a role is below its minimum
  kBudget,      // above the budget: shrink
  kFlipTimedOut,
};
std::string_view NameOf(MoveReason reason);

// Give this instance another role.
struct FlipRole {
  std::string instance;
  WorkerRole to = WorkerRole::kDecode;
};
// Plan this many replicas for the pool.
struct ScalePool {
  std::string pool;
  uint32_t from = 0, to = 0;
};

struct Move {
  std::optional<FlipRole> flip;  // exactly one of the two
  std::optional<ScalePool> scale;
  MoveReason reason{};
  std::string explanation;  // one line with the figures that decided
};

// Load over capacity, per role; 1 is full.
struct PoolPressure {
  double prefill = 0, decode = 0;
};

struct Plan {
  // In the order in which to begin them, what shrinks first; when one cannot
  // be written down, those after it must wait for the next plan.
  std::vector<Move> moves;
  PoolPressure pressure;
  // One line: why nothing moves, or what moves.
  std::string explanation;
  TimePoint decide_again{};  // at the latest
};

// Confined to one thread. Holds only what makes decisions steady (since when a
// pressure has lasted, when the last move ended, how long moves take): a new
// leader starts with an empty one and loses nothing but time.
//
// Invariants, whatever the view says: Σ over pools of planned replicas ×
// devices never exceeds the budget because of a move, every plan is within
// [min, max] (the budget wins over min), no role that a pool has is flipped
// below one ready instance, unreachable and pending instances hold up nobody
// else.
class PlannerCore {
 public:
  explicit PlannerCore(PlannerConfig config);
  ~PlannerCore();

  Plan Decide(const FleetView& view, TimePoint now);
  void SetConfig(const PlannerConfig& config);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The pressure that autoscalers may read as well (the gauge
// `tidepool_conductor_saturation_ratio`), from 0 to kPressureMax.
//   prefill: time to compute all prompt tokens that are queued or wait for a
//     place in the queue at the measured speed, over the TTFT SLO
//     (kDefaultTtftSlo if none is stated); before any speed is measured, such
//     requests per instance over kWaitingFull; and the observed TTFT over its
//     SLO while there are such requests.
//   decode: the largest of requests that run or wait for room to decode over
//     the bound of those that run, pages in use over pages, and the observed
//     TBT over its SLO while requests run.
// Without a prefill instance the decode instances bear both. A role without a
// ready instance is at kPressureMax if anything asks for it.
inline constexpr double kPressureMax = 10;
inline constexpr Duration kDefaultTtftSlo = std::chrono::seconds(2);
inline constexpr double kWaitingFull = 4;
PoolPressure Pressure(const FleetView& view, const PlannerConfig& config);

// How many replicas each pool may have right now so that the devices held,
// counting `observed` (pods that exist, terminating ones included), stay
// within the budget: shrinking is immediate, growing waits for room. Same
// order as `pools`; kept apart from Decide since whoever applies a plan must
// ask again before each write.
struct ReplicaGrant {
  std::string pool;
  uint32_t planned = 0;  // wanted
  // Pods that exist, or that the StatefulSet was told to make, whichever is
  // more.
  uint32_t observed = 0;
  uint32_t devices_per_replica = 1;
};
std::vector<uint32_t> GrantReplicas(std::span<const ReplicaGrant> pools,
                                    std::optional<uint32_t> budget);

}  // namespace tidepool::scheduling
