#include "dataplane/worker/worker_shell_runtime.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "dataplane/base/log.h"

namespace tidepool::worker {
namespace {

// Messages and calls that wait for the core.
constexpr size_t kInboxCapacity = 8192;
constexpr uint64_t kInboxBytesMax = 256 << 20;
constexpr size_t kMaxPeerChannels = 256;
// The core's thread does something at least this often, to show that it lives.
constexpr Duration kTurnMax = std::chrono::seconds(1);

WorkerCoreConfig CoreConfig(const wire::DescribeResponse& description,
                            const engine::KvLayout& layout) {
  return {.description = description,
          .slice_bytes = static_cast<uint64_t>(layout.slice_bytes())};
}

TimePoint Now() { return Clock::Monotonic().Now(); }

}  // namespace

WorkerRuntime::WorkerRuntime(LoadedEngine loaded,
                             const wire::DescribeResponse& description,
                             transfer::TransportPolicy policy,
                             transfer::Messenger& messenger,
                             transfer::MemoryRegion region,
                             SessionRegistry& sessions, PeerService& peers,
                             const rpc::Security& security)
    : sessions_(sessions),
      peers_(peers),
      loaded_(std::move(loaded)),
      inbox_(kInboxCapacity, kInboxBytesMax),
      grants_(messenger, region.id(), loaded_.layout, loaded_.num_pages),
      streams_(
          messenger, region.id(), policy, loaded_.layout, loaded_.num_pages,
          {.on_sent =
               [this](SlicesSent sent) {
                 inbox_.Post([this, sent = std::move(sent)](TimePoint now) {
                   core_.OnSlicesSent(sent, now);
                 });
               },
           .on_closed =
               [this](StreamId stream) {
                 inbox_.Post([this, stream](TimePoint now) {
                   core_.OnStreamClosed(stream, now);
                 });
               }}),
      region_(std::move(region)),
      client_(
          security,
          [this](PeerCallId call, StatusOr<PeerResponse> response) {
            inbox_.Post(
                [this, call, response = std::move(response)](TimePoint now) {
                  core_.OnPeerReply(call, response, now);
                });
          },
          kMaxPeerChannels),
      core_(CoreConfig(description, loaded_.layout), *loaded_.core),
      snapshot_{.engine = loaded_.core->Stats(),
                .core = core_.Stats(),
                .role = core_.role_state(),
                .turned_at = Now()} {
  engine_thread_ = std::thread([this] { RunEngine(); });
  core_thread_ = std::thread([this] { RunCore(); });
}

WorkerRuntime::~WorkerRuntime() {
  inbox_.Close();
  core_thread_.join();
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  engine_thread_.join();
}

bool WorkerRuntime::OnSessionMessage(SessionId session,
                                     wire::SessionRequest message) {
  const uint64_t bytes = message.SpaceUsedLong();
  return inbox_.TryPost(
      bytes, [this, session, message = std::move(message)](TimePoint now) {
        core_.OnSessionMessage(session, message, now);
      });
}

bool WorkerRuntime::OnPeerCall(IncomingCallId call, PeerRequest request) {
  const uint64_t bytes = std::visit(
      [](const auto& one) -> uint64_t { return one.SpaceUsedLong(); }, request);
  return inbox_.TryPost(
      bytes, [this, call, request = std::move(request)](TimePoint now) {
        core_.OnPeerCall(call, request, now);
      });
}

void WorkerRuntime::OnSessionClosed(SessionId session) {
  inbox_.Post(
      [this, session](TimePoint now) { core_.OnSessionClosed(session, now); });
}

bool WorkerRuntime::SetRole(
    const wire::SetRoleRequest& request,
    std::function<void(StatusOr<wire::RoleState>)> reply) {
  return inbox_.TryPost(
      sizeof(request),
      [this, request, reply = std::move(reply)](TimePoint now) {
        StatusOr<wire::RoleState> state = core_.SetRole(request, now);
        RefreshSnapshot();  // so that Describe does not lag behind the answer
        reply(std::move(state));
      });
}

void WorkerRuntime::Drain(Duration timeout) {
  inbox_.Post([this, timeout](TimePoint now) {
    draining_ = true;
    core_.Drain(timeout, now);
  });
}

WorkerSnapshot WorkerRuntime::snapshot() const {
  const MutexLock lock(&mutex_);
  return snapshot_;
}

void WorkerRuntime::RunCore() {
  while (!inbox_.closed()) {
    const TimePoint wake = std::min(core_.NextDeadline(), Now() + kTurnMax);
    for (Inbox::Task& task : inbox_.Take(wake)) task(Now());
    if (const TimePoint now = Now(); core_.NextDeadline() <= now)
      core_.Tick(now);
    for (WorkerEffect& effect : core_.TakeEffects())
      std::visit([this](auto& one) { Perform(std::move(one)); }, effect);
    RefreshSnapshot();
    if (draining_ && core_.Idle()) idle_.Notify();
  }
}

void WorkerRuntime::RefreshSnapshot() {
  WorkerSnapshot snapshot{.engine = loaded_.core->Stats(),
                          .core = core_.Stats(),
                          .role = core_.role_state(),
                          .turned_at = Now()};
  const MutexLock lock(&mutex_);
  snapshot.step_since = snapshot_.step_since;
  snapshot_ = std::move(snapshot);
}

void WorkerRuntime::RunEngine() {
  while (true) {
    const engine::StepPlan* plan;
    {
      const MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || plan_ != nullptr;
      };
      mutex_.Await(absl::Condition(&ready));
      if (stopping_) return;
      plan = std::exchange(plan_, nullptr);
    }
    const Status status = loaded_.runner->Execute(*plan, this, result_);
    if (!status.ok())
      LOG_ERROR("step {} failed: {}", plan->number, MessageOf(status));
    streams_.FinishStep(status.ok());
    {
      const MutexLock lock(&mutex_);
      snapshot_.step_since.reset();
    }
    inbox_.Post([this, status](TimePoint now) {
      core_.OnStepDone(status, result_, now);
    });
  }
}

void WorkerRuntime::OnLayer(const engine::StepPlan&, int32_t layer) {
  streams_.OnLayer(layer);
}

void WorkerRuntime::Perform(SendToConductor effect) {
  sessions_.Send(effect.session, std::move(effect.message));
}

void WorkerRuntime::Perform(EndSession effect) {
  LOG_INFO("session {} ends: {}", effect.session, MessageOf(effect.reason));
  sessions_.End(effect.session, effect.reason);
}

void WorkerRuntime::Perform(CallPeer effect) { client_.Call(effect); }

void WorkerRuntime::Perform(ReplyToPeer effect) {
  peers_.Reply(effect.call, std::move(effect.response));
}

void WorkerRuntime::Perform(GrantCapability effect) {
  auto capability = grants_.Grant(effect, Now());
  inbox_.Post([this, grant = effect.grant, capability = std::move(capability)](
                  TimePoint now) { core_.OnGranted(grant, capability, now); });
}

void WorkerRuntime::Perform(RevokeCapability effect) {
  grants_.Revoke(effect.grant, [this, grant = effect.grant](
                                   const transfer::Received& received) {
    inbox_.Post([this, grant, received](TimePoint now) {
      core_.OnRevoked(grant, received, now);
    });
  });
}

void WorkerRuntime::Perform(RunStep effect) {
  streams_.StartStep(std::move(effect.step_pages));
  const MutexLock lock(&mutex_);
  plan_ = effect.plan;
  snapshot_.step_since = Now();
}

void WorkerRuntime::Perform(AddFinalPages effect) {
  streams_.AddFinal(std::move(effect.pages));
}

void WorkerRuntime::Perform(OpenStream effect) {
  streams_.Open(std::move(effect.target));
}

void WorkerRuntime::Perform(CloseStream effect) {
  streams_.Close(effect.stream);
}

}  // namespace tidepool::worker
