#include "tests/sim/controller_scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "controller/kube/resource_types.h"
#include "dataplane/base/check.h"

namespace tidepool::sim {
namespace {

using namespace std::chrono_literals;

constexpr char kFamily[] = "demo";
constexpr Duration kTurbulence = 20min;

}  // namespace

ControllerScenario::ControllerScenario(uint64_t seed)
    : seed_(seed), random_(seed), clock_(queue_), server_({}, clock_) {}

ControllerScenario::~ControllerScenario() = default;

Duration ControllerScenario::Draw(double least_s, double most_s) {
  return std::chrono::duration_cast<Duration>(
      Seconds(least_s + random_.Unit() * (most_s - least_s)));
}

void ControllerScenario::Fail(const std::string& what) {
  if (!failed())
    result_.error = fmt::format(
        "at {:.1f} s: {}", Seconds(now().time_since_epoch()).count(), what);
}

void ControllerScenario::RunUntil(TimePoint end) {
  while (now() < end && !failed() && queue_.RunNext(end)) audit_->Check();
}

void ControllerScenario::Every(Duration interval, std::function<void()> act) {
  queue_.In(interval, [this, interval, act = std::move(act)] {
    // First: within `act` the world may go on.
    Every(interval, act);
    act();
  });
}

// ---- What there is ----

void ControllerScenario::Make() {
  const Report report = [this](const std::string& what) { Fail(what); };
  queue_.At(TimePoint(1h), [] {});
  (void)queue_.RunNext(TimePoint(1h));
  cluster_ = std::make_unique<ControllerCluster>(server_, queue_,
                                                 random_.Next(), report);
  audit_ = std::make_unique<ControllerAudit>(server_, queue_, report);
  DrawPool(true, "demo-prefill");
  DrawPool(false, "demo-decode");
  if (random_.Chance(0.3)) DrawPool(true, "demo-prefill-b");
  if (random_.Chance(0.3)) DrawPool(false, "demo-decode-b");
  int64_t wished = 0;
  for (const PoolPlan& pool : pools_) wished += pool.replicas * pool.devices;
  budget_ = wished + static_cast<int64_t>(random_.Below(5));
  CHECK(server_
            .Create(kube::kKVCachePool, kModelSpace,
                    {{"metadata", {{"name", kFamily}}},
                     {"spec",
                      {{"model", {{"uri", "demo"}}},
                       {"tls", {{"policy", "Off"}}},
                       {"conductor", {{"replicas", 1 + random_.Below(2)}}},
                       {"slo", {{"ttftMilliseconds", 1000}}},
                       {"rebalancing",
                        {{"policy", "Reactive"},
                         {"acceleratorBudget", budget_},
                         {"stabilizationSeconds", 1 + random_.Below(3)}}}}}})
            .ok());
  // In some clusters the budget does not fit.
  const int64_t capacity = budget_ + 8 - (random_.Chance(0.2) ? 9 : 0);
  for (int64_t left = capacity; left > 0; left -= 4)
    cluster_->AddNode(static_cast<uint32_t>(std::min<int64_t>(left, 4)));
  for (size_t i = 0; i < std::size(slots_); ++i) {
    slots_[i].name = fmt::format("controller-{}", i);
    StartController(slots_[i]);
  }
  result_.description = fmt::format("{} pools, budget {}, capacity {}",
                                    pools_.size(), budget_, capacity);
}

void ControllerScenario::DrawPool(bool is_prefill, const std::string& name) {
  PoolPlan pool{.name = name,
                .is_prefill = is_prefill,
                .devices = random_.Chance(0.2) ? 2u : 1u,
                .replicas = 1 + static_cast<int64_t>(random_.Below(3))};
  pool.min = random_.Chance(0.2) ? 0 : 1;
  pool.max = pool.replicas + static_cast<int64_t>(random_.Below(4));
  MakePool(pool);
  pools_.push_back(std::move(pool));
}

void ControllerScenario::MakePool(PoolPlan& pool) {
  const Json limits = {{"nvidia.com/gpu", std::to_string(pool.devices)}};
  CHECK(server_
            .Create(pool.is_prefill ? kube::kPrefillPool : kube::kDecodePool,
                    kModelSpace,
                    {{"metadata", {{"name", pool.name}}},
                     {"spec",
                      {{"kvCachePoolRef", {{"name", kFamily}}},
                       {"resources", {{"limits", limits}}},
                       {"drainSeconds", 20}}}})
            .ok());
  pool.is_deleted = false;
  WritePool(pool);
}

void ControllerScenario::WritePool(const PoolPlan& pool) {
  CHECK(server_
            .Patch(pool.is_prefill ? kube::kPrefillPool : kube::kDecodePool,
                   {kModelSpace, pool.name}, kube::PatchType::kMerge,
                   {{"spec",
                     {{"replicas", pool.replicas},
                      {"minReplicas", pool.min},
                      {"maxReplicas", pool.max}}}})
            .ok());
}

void ControllerScenario::PatchFamily(Json spec) {
  CHECK(server_
            .Patch(kube::kKVCachePool, {kModelSpace, kFamily},
                   kube::PatchType::kMerge, {{"spec", std::move(spec)}})
            .ok());
}

// ---- Controllers ----

void ControllerScenario::StartController(Slot& slot) {
  slot.process = std::make_unique<ControllerProcess>(
      server_, queue_, *cluster_, *audit_,
      ControllerProcessOptions{
          .identity = fmt::format("{}-{}", slot.name, ++starts_),
          .seed = random_.Next(),
          .before_write = [this, &slot] { BeforeWrite(slot); }});
}

void ControllerScenario::StopController(Slot& slot) {
  if (slot.process == nullptr || slot.process->is_busy()) return;
  writes_of_dead_ += slot.process->writes();
  slot.process.reset();
  slot.starts_at = now() + (is_calm_ ? 1s : Draw(0.2, 15));
  ++result_.deaths;
}

void ControllerScenario::StepControllers() {
  for (Slot& slot : slots_) {
    if (slot.process == nullptr && now() >= slot.starts_at)
      StartController(slot);
    if (slot.process == nullptr || slot.process->is_busy()) continue;
    const bool led = slot.process->IsLeading();
    slot.process->Step();
    if (!led && slot.process->IsLeading()) ++result_.terms;
    if (slot.process->client().dead()) StopController(slot);
  }
}

// The process is stopped between asking whether it leads and writing; the
// world goes on, others lead, and then its write arrives.
void ControllerScenario::BeforeWrite(Slot& slot) {
  if (freeze_at_write_ == 0 || is_nested_ || &slot != &Leader()) return;
  if (--freeze_at_write_ > 0) return;
  is_nested_ = true;
  ++result_.freezes;
  RunUntil(now() + freeze_for_);
  is_nested_ = false;
}

ControllerScenario::Slot& ControllerScenario::Leader() {
  for (Slot& slot : slots_)
    if (slot.process != nullptr && slot.process->IsLeading()) return slot;
  return slots_[0];
}

ControllerScenario::Slot& ControllerScenario::Any() {
  return random_.Chance(0.7) ? Leader()
                             : slots_[random_.Below(std::size(slots_))];
}

// ---- Faults ----

void ControllerScenario::Fault() {
  ++result_.faults;
  Slot& slot = Any();
  const uint64_t kind = random_.Below(10);
  if (kind < 5) return FaultOfFleet();
  if (slot.process == nullptr) return;
  kind < 7 ? FaultOfApi(slot) : FaultOfController(slot);
}

void ControllerScenario::FaultOfApi(Slot& slot) {
  ControllerProcess& process = *slot.process;
  const auto both = [&](auto act) {
    act(process.client());
    act(process.election_client());
  };
  const auto later = [this, &slot](Duration after, auto act) {
    queue_.In(after, [&slot, act, was = slot.process.get()] {
      if (slot.process.get() == was && was != nullptr) act(*was);
    });
  };
  switch (random_.Below(8)) {
    case 0: {
      const fakes::FaultRates rates{.write_lost = 0.3 * random_.Unit(),
                                    .answer_lost = 0.3 * random_.Unit(),
                                    .conflict = 0.3 * random_.Unit(),
                                    .read_failed = 0.2 * random_.Unit(),
                                    .read_stale = 0.5 * random_.Unit(),
                                    .list_broken = 0.3 * random_.Unit(),
                                    .stale_max = 60};
      process.client().set_rates(rates);
      later(Draw(2, 30), [](ControllerProcess& controller) {
        controller.client().set_rates({});
      });
      return;
    }
    case 1:
      return process.HoldInformersUntil(now() + Draw(0.5, 20));
    case 2:
      return process.DropWatches();
    case 3:
      cluster_->Sync();
      audit_->Check();
      server_.Compact();
      return process.DropWatches();
    case 4:
      return process.client().Deafen();
    case 5:
      process.client().FailWrite(1 + random_.Below(8), random_.Chance(0.5));
      return;
    default:
      both([this, freeze = random_.Chance(0.5)](fakes::FaultyClient& client) {
        freeze ? client.Freeze() : client.Cut();
      });
      later(Draw(1, 20), [](ControllerProcess& controller) {
        controller.client().Revive();
        controller.election_client().Revive();
      });
  }
}

void ControllerScenario::FaultOfController(Slot& slot) {
  switch (random_.Below(5)) {
    case 0:
    case 1:
      slot.process->client().DieAtWrite(1 + random_.Below(6),
                                        random_.Chance(0.5));
      return;
    case 2:
      return StopController(slot);
    case 3:
      slot.process->FreezeUntil(now() + Draw(1, 25));
      ++result_.freezes;
      return;
    default:
      freeze_at_write_ = 1 + random_.Below(6);
      freeze_for_ = Draw(2, 18);
  }
}

void ControllerScenario::FaultOfFleet() {
  switch (random_.Below(12)) {
    case 0:
      return cluster_->LoseNode(Draw(5, 90));
    case 1:
      return cluster_->Cordon(Draw(10, 90));
    case 2:
      return cluster_->StartSlowly(Draw(10, 60));
    case 3:
      return cluster_->SlowFlips(
          Draw(10, 60), random_.Chance(0.3) ? Draw(100, 500) : Draw(8, 40));
    case 4:
    case 5:
      return cluster_->HideWorker(random_.Next(), Draw(2, 60));
    case 6:
    case 7:
      return cluster_->CrashWorker(random_.Next(), random_.Chance(0.2));
    case 8:
      return cluster_->CrashConductor(random_.Next());
    case 9:
      return cluster_->EvictPod(random_.Next());
    default:
      for (Slot& slot : slots_) {
        if (slot.process == nullptr) continue;
        if (random_.Chance(0.5))
          slot.process->fleet().set_deaf_until(now() + Draw(2, 40));
        slot.process->fleet().set_network(Draw(0.01, 8), random_.Unit() * 0.5);
      }
  }
}

void ControllerScenario::EndFaults() {
  is_calm_ = true;
  freeze_at_write_ = 0;
  cluster_->Heal();
  for (Slot& slot : slots_) {
    if (slot.process == nullptr) continue;
    if (slot.process->client().dead()) {
      StopController(slot);
      continue;
    }
    // Faults that are still to come go with their process.
    slot.process->client().set_rates({});
    slot.process->client().Revive();
    slot.process->election_client().Revive();
    slot.process->FreezeUntil(now());
    slot.process->HoldInformersUntil(now());
    slot.process->fleet().set_deaf_until(now());
    slot.process->fleet().set_network(50ms, 0);
  }
}

// ---- Users and clients ----

void ControllerScenario::Wish() {
  ++result_.wishes;
  if (random_.Chance(0.35)) return WishOfFamily();
  WishOfPool(pools_[random_.Below(pools_.size())]);
}

void ControllerScenario::WishOfFamily() {
  switch (random_.Below(4)) {
    case 0:
      if (now() < off_until_) return;
      off_until_ = now() + Draw(20, 60);
      PatchFamily({{"rebalancing", {{"policy", "Off"}}}});
      cluster_->set_all_return(true);
      queue_.At(off_until_, [this] {
        PatchFamily({{"rebalancing", {{"policy", "Reactive"}}}});
      });
      queue_.At(off_until_ + 40s, [this] {
        if (now() >= off_until_ + 40s) cluster_->set_all_return(false);
      });
      return;
    default: {
      const auto change = static_cast<int64_t>(random_.Below(7)) - 3;
      budget_ = std::clamp<int64_t>(budget_ + change, 2, 16);
      PatchFamily({{"rebalancing", {{"acceleratorBudget", budget_}}}});
    }
  }
}

// With what it had made; another of its name comes later.
void ControllerScenario::DeletePool(PoolPlan& pool) {
  pool.is_deleted = true;
  CHECK(server_
            .Delete(pool.is_prefill ? kube::kPrefillPool : kube::kDecodePool,
                    {kModelSpace, pool.name})
            .ok());
  queue_.In(Draw(0.5, 60), [this, &pool] { MakePool(pool); });
}

void ControllerScenario::ResizePods(const PoolPlan& pool) {
  const Json limits = {{"nvidia.com/gpu", std::to_string(pool.devices)}};
  CHECK(server_
            .Patch(pool.is_prefill ? kube::kPrefillPool : kube::kDecodePool,
                   {kModelSpace, pool.name}, kube::PatchType::kMerge,
                   {{"spec", {{"resources", {{"limits", limits}}}}}})
            .ok());
}

void ControllerScenario::WishOfPool(PoolPlan& pool) {
  if (pool.is_deleted) return;
  switch (random_.Below(7)) {
    case 0:
    case 1:
      pool.replicas =
          pool.min + static_cast<int64_t>(random_.Below(
                         static_cast<uint64_t>(pool.max - pool.min + 1)));
      return WritePool(pool);
    case 2:
      pool.min = static_cast<int64_t>(
          random_.Below(static_cast<uint64_t>(pool.replicas + 1)));
      pool.max = pool.replicas + static_cast<int64_t>(random_.Below(5));
      return WritePool(pool);
    case 3:  // applied again, as tools do
      return WritePool(pool);
    case 4:
      return DeletePool(pool);
    case 5:
      pool.devices = 3 - pool.devices;
      return ResizePods(pool);
    default: {
      const kube::ResourceType& type =
          pool.is_prefill ? kube::kPrefillPool : kube::kDecodePool;
      const bool rolls = random_.Chance(0.5);
      Json change =
          rolls ? Json{{"template",
                        {{"labels",
                          {{"round", std::to_string(result_.wishes)}}}}}}
                : Json{{"lending",
                        random_.Chance(0.3) ? "Forbidden" : "Allowed"}};
      CHECK(server_
                .Patch(type, {kModelSpace, pool.name}, kube::PatchType::kMerge,
                       {{"spec", std::move(change)}})
                .ok());
    }
  }
}

void ControllerScenario::ShiftLoad() {
  const double instances = static_cast<double>(budget_);
  switch (random_.Below(5)) {
    case 0:
    case 1:
      return cluster_->set_demand({.prefill = instances, .decode = 0.3});
    case 2:
    case 3:
      return cluster_->set_demand({.prefill = 0.3, .decode = instances});
    default:
      cluster_->set_demand({.prefill = instances * random_.Unit(),
                            .decode = instances * random_.Unit()});
  }
}

// ---- The whole ----

ControllerResult ControllerScenario::Run() {
  Make();
  Every(500ms, [this] { cluster_->Step(); });
  Every(300ms, [this] { StepControllers(); });
  Every(1min, [this] { server_.SendBookmarks(); });
  Every(3s, [this] { server_.CollectGarbage(); });
  RunUntil(now() + 30s);
  const TimePoint end = now() + kTurbulence;
  TimePoint fault = now(), wish = now(), shift = now();
  while (now() < end && !failed()) {
    RunUntil(std::min({fault, wish, shift, end}));
    if (now() >= fault) {
      Fault();
      fault = now() + Draw(1, 20);
    }
    if (now() >= wish) {
      Wish();
      audit_->Check();  // before what anybody makes of it
      wish = now() + Draw(10, 60);
    }
    if (now() >= shift) {
      ShiftLoad();
      shift = now() + Draw(10, 40);
    }
  }
  // Off is over by then, and all pools are there.
  RunUntil(std::max(now() + 61s, off_until_ + 1s));
  EndFaults();
  if (random_.Chance(0.5)) {
    cluster_->set_demand(
        {.prefill = 0.75, .decode = 0.75, .per_instance = true});
  } else {
    cluster_->set_demand({.prefill = 0.1, .decode = 0.1, .per_instance = true});
  }
  CheckIdle();
  CheckResponds(WorkerRole::kPrefill);
  CheckResponds(WorkerRole::kDecode);
  result_.flips = audit_->flips();
  result_.scales = audit_->scales();
  result_.flipped = cluster_->flips();
  result_.writes = Writes();
  return result_;
}

}  // namespace tidepool::sim
