// Workers and the sessions with them.
#include <algorithm>
#include <cstring>

#include "dataplane/base/digest.h"
#include "dataplane/conductor/conductor_core_impl.h"

namespace tidepool::conductor {
namespace {

// Doubles with every failure in a row, jittered so that many conductors do
// not come back at once.
Duration NextBackoff(const Worker& worker, const ConductorCoreConfig& config) {
  return std::clamp(worker.backoff * 2, config.reconnect_backoff_min,
                    worker.status.loading ? config.loading_backoff_max
                                          : config.reconnect_backoff_max);
}

Status ValidateHello(const wire::DescribeResponse& hello) {
  if (hello.incarnation() == 0) return InvalidArgument("incarnation is 0");
  if (hello.role() != wire::ROLE_PREFILL && hello.role() != wire::ROLE_DECODE) {
    return InvalidArgument("role {} is unknown",
                           static_cast<int>(hello.role()));
  }
  if (hello.identity().page_tokens() == 0) {
    return InvalidArgument("identity.page_tokens is 0");
  }
  if (hello.max_model_len() == 0) return InvalidArgument("max_model_len is 0");
  if (hello.max_num_seqs() == 0) return InvalidArgument("max_num_seqs is 0");
  return OkStatus();
}

// 64 bits that are equal only for equal identities.
uint64_t NameOf(const wire::ModelIdentity& identity) {
  const Sha256Digest digest = Sha256Of(identity.SerializeAsString());
  uint64_t name;
  std::memcpy(&name, digest.bytes.data(), sizeof(name));
  return name;
}

}  // namespace

StatusOr<WorkerId> ConductorCore::Impl::AddWorker(std::string name,
                                                  std::string address,
                                                  TimePoint now) {
  if (workers_.size() >= config_.max_workers) {
    return ResourceExhausted("worker {}: at most {} workers", address,
                             config_.max_workers);
  }
  for (const auto& [id, worker] : workers_) {
    if (worker.status.address == address) {
      return MakeError(Code::kAlreadyExists, "worker {} is known as {}",
                       address, worker.status.name);
    }
  }
  const WorkerId id = next_worker_++;
  Worker& worker = workers_[id];
  worker.status.id = id;
  worker.named = !name.empty();
  worker.status.name = worker.named ? std::move(name) : address;
  worker.status.address = std::move(address);
  Connect(worker, now);
  return id;
}

void ConductorCore::Impl::RemoveWorker(WorkerId id, TimePoint now) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  if (it->second.state != Worker::State::kBackoff) {
    Drop(it->second, "removed", now);
  }
  worker_wakes_.Disarm(id);
  workers_.erase(it);
  dispatch_ = true;
}

void ConductorCore::Impl::Connect(Worker& worker, TimePoint now) {
  worker.state = Worker::State::kConnecting;
  worker.connection = next_connection_++;
  worker.state_deadline = now + config_.connect_timeout;
  worker.next_sent = worker.next_received = 1;
  worker.said_loading = false;
  connections_[worker.connection] = worker.status.id;
  worker_wakes_.Arm(worker.status.id, worker.state_deadline);
  effects_.push_back(ConnectWorker{.connection = worker.connection,
                                   .worker = worker.status.id,
                                   .address = worker.status.address,
                                   .deadline = worker.state_deadline});
}

void ConductorCore::Impl::SendMessage(Worker& worker,
                                      wire::SessionRequest message) {
  message.set_sequence(worker.next_sent++);
  effects_.push_back(SendToWorker{.connection = worker.connection,
                                  .message = std::move(message)});
}

Worker* ConductorCore::Impl::FindConnection(ConnectionId connection) {
  const auto it = connections_.find(connection);
  return it == connections_.end() ? nullptr : &workers_.at(it->second);
}

void ConductorCore::Impl::LoseConnection(Worker& worker,
                                         const std::string& reason,
                                         TimePoint now) {
  connections_.erase(worker.connection);
  if (worker.state == Worker::State::kUp) ReviewPatience(now);
  worker.state = Worker::State::kBackoff;
  worker.connection = 0;
  worker.load_known = false;
  // Nothing is known of its memory now; what it counted it will count on.
  const uint64_t preemptions = worker.status.load.preemptions_total();
  worker.status.load.Clear();
  worker.status.load.set_preemptions_total(preemptions);
  worker.status.last_failure = reason;
  worker.status.loading = worker.said_loading;
  if (!worker.status.loading) ++worker.status.failures;
  worker.backoff = NextBackoff(worker, config_);
  worker.state_deadline =
      now + worker.backoff / 2 +
      Duration(random_.Below(static_cast<uint64_t>(worker.backoff.count())));
  worker_wakes_.Arm(worker.status.id, worker.state_deadline);

  const std::string why = worker.status.name + ": " + reason;
  for (const Handle handle : std::set<Handle>(worker.requests)) {
    Request& request = requests_.at(handle);
    if (IsPastPrefill(request, worker)) {
      ReleasePrefill(request);
      continue;
    }
    Exclude(request, worker);
    FailAttempt(request, why, now);
  }
  worker.recent_tokens = worker.previous_tokens = 0;
}

void ConductorCore::Impl::ReviewPatience(TimePoint now) {
  lost_worker_at_ = now;
  for (const Handle handle : waiting_) {
    request_wakes_.Arm(handle, now + config_.max_unready_wait);
  }
}

void ConductorCore::Impl::Drop(Worker& worker, const std::string& reason,
                               TimePoint now) {
  effects_.push_back(
      DisconnectWorker{.connection = worker.connection, .reason = reason});
  LoseConnection(worker, reason, now);
}

void ConductorCore::Impl::OnConnected(ConnectionId connection, TimePoint now) {
  Worker* worker = FindConnection(connection);
  if (worker == nullptr || worker->state != Worker::State::kConnecting) return;
  worker->state = Worker::State::kGreeting;
  worker->last_heard = now;
  wire::SessionRequest message;
  message.mutable_hello()->set_conductor_id(config_.conductor_id);
  message.mutable_hello()->set_incarnation(config_.incarnation);
  SendMessage(*worker, std::move(message));
}

void ConductorCore::Impl::OnDisconnected(ConnectionId connection,
                                         const Status& reason, TimePoint now) {
  Worker* worker = FindConnection(connection);
  if (worker == nullptr) return;
  LoseConnection(*worker, fmt::format("session ended: {}", MessageOf(reason)),
                 now);
}

void ConductorCore::Impl::OnDescribed(
    ConnectionId connection, const wire::DescribeResponse& description) {
  Worker* worker = FindConnection(connection);
  if (worker == nullptr || worker->state == Worker::State::kUp) return;
  if (description.ready()) return;  // since the session was refused
  worker->said_loading = true;
  worker->status.description = description;
  if (!worker->named) TakeName(*worker);
}

void ConductorCore::Impl::OnMessage(ConnectionId connection,
                                    const wire::SessionResponse& message,
                                    TimePoint now) {
  Worker* worker = FindConnection(connection);
  if (worker == nullptr) return;  // late, of a connection given up
  if (message.sequence() != worker->next_received) {
    ++stats_.gaps;
    Drop(*worker,
         fmt::format("message {} came where {} was due", message.sequence(),
                     worker->next_received),
         now);
    return;
  }
  ++worker->next_received;
  worker->last_heard = now;
  const bool decoded = worker->ready_to_decode();
  HandleMessage(*worker, message, now);
  if (decoded && !worker->ready_to_decode()) ReviewPatience(now);
}

void ConductorCore::Impl::HandleMessage(Worker& worker,
                                        const wire::SessionResponse& message,
                                        TimePoint now) {
  if (message.has_hello()) return OnHello(worker, message.hello(), now);
  if (worker.state != Worker::State::kUp) {
    return Drop(worker, "the first message is no hello", now);
  }
  switch (message.message_case()) {
    case wire::SessionResponse::kOutputs:
      for (const wire::RequestOutput& output : message.outputs().outputs()) {
        OnOutput(worker, output, now);
      }
      return;
    case wire::SessionResponse::kFailure:
      return OnFailure(worker, message.failure(), now);
    case wire::SessionResponse::kHandedOver:
      return OnHandedOver(worker, message.handed_over(), now);
    case wire::SessionResponse::kLoad:
      return OnLoad(worker, message.load());
    case wire::SessionResponse::kRoleState:
      return OnRoleState(worker, message.role_state(), now);
    case wire::SessionResponse::kHello:
    case wire::SessionResponse::MESSAGE_NOT_SET:
      return Drop(worker, "a message of an unknown kind", now);
  }
}

void ConductorCore::Impl::OnHello(Worker& worker,
                                  const wire::WorkerHello& hello,
                                  TimePoint now) {
  if (worker.state != Worker::State::kGreeting) {
    return Drop(worker, "a second hello", now);
  }
  const Status valid = ValidateHello(hello.description());
  if (!valid.ok()) {
    return Drop(worker, fmt::format("bad hello: {}", MessageOf(valid)), now);
  }
  worker.state = Worker::State::kUp;
  worker.backoff = Duration(0);
  worker.status.loading = false;
  worker.status.description = hello.description();
  worker.identity = NameOf(hello.description().identity());
  if (!worker.named) TakeName(worker);
  worker_wakes_.Arm(worker.status.id, now + config_.silence_timeout);
}

void ConductorCore::Impl::TakeName(Worker& worker) {
  constexpr size_t kNameBytesMax = 253;
  const std::string& name = worker.status.description.name();
  const bool plain = !name.empty() && name.size() <= kNameBytesMax &&
                     std::ranges::all_of(name, [](char c) {
                       return c > ' ' && c < 127 && c != '"' && c != '\\';
                     });
  const auto other = std::ranges::find_if(workers_, [&](const auto& entry) {
    return &entry.second != &worker && entry.second.status.name == name;
  });
  bool taken = other != workers_.end();
  // A pod that starts again has its name still, and another address.
  if (taken && !other->second.named &&
      other->second.state != Worker::State::kUp) {
    other->second.status.name = other->second.status.address;
    taken = false;
  }
  // Two of a name would be one in every metric.
  worker.status.name = plain && !taken ? name : worker.status.address;
}

void ConductorCore::Impl::OnRoleState(Worker& worker,
                                      const wire::RoleState& state,
                                      TimePoint now) {
  if (state.role() != wire::ROLE_PREFILL && state.role() != wire::ROLE_DECODE) {
    return Drop(worker,
                fmt::format("bad role state: role {} is unknown",
                            static_cast<int>(state.role())),
                now);
  }
  *worker.status.description.mutable_role_state() = state;
  worker.status.description.set_role(state.role());
  dispatch_ = true;
}

void ConductorCore::Impl::OnLoad(Worker& worker, const wire::WorkerLoad& load) {
  worker.status.load = load;
  worker.load_known = true;
  worker.previous_tokens = std::exchange(worker.recent_tokens, 0);
  dispatch_ = true;
}

void ConductorCore::Impl::WakeWorker(WorkerId id, TimePoint now) {
  Worker& worker = workers_.at(id);
  TimePoint due = worker.state_deadline;
  if (worker.state == Worker::State::kUp) {
    due = worker.last_heard + config_.silence_timeout;
  }
  if (due > now) return worker_wakes_.Arm(id, due);
  switch (worker.state) {
    case Worker::State::kBackoff:
      return Connect(worker, now);
    case Worker::State::kConnecting:
    case Worker::State::kGreeting:
      return Drop(worker, "no hello in time", now);
    case Worker::State::kUp:
      return Drop(worker, "silent for too long", now);
  }
}

std::vector<WorkerStatus> ConductorCore::Impl::Workers() const {
  std::vector<WorkerStatus> result;
  for (const auto& [id, worker] : workers_) {
    result.push_back(worker.status);
    result.back().connected = worker.state == Worker::State::kUp;
    result.back().ready = worker.ready();
    result.back().own_requests = static_cast<uint32_t>(worker.requests.size());
  }
  return result;
}

bool ConductorCore::Impl::Ready() const {
  return std::ranges::any_of(workers_, [](const auto& entry) {
    return entry.second.ready_to_decode();
  });
}

std::vector<scheduling::WorkerView> ConductorCore::Impl::Views() const {
  std::vector<scheduling::WorkerView> views;
  views.reserve(workers_.size());
  for (const auto& [id, worker] : workers_) {
    const wire::DescribeResponse& hello = worker.status.description;
    const wire::WorkerLoad& load = worker.status.load;
    const bool prefill = hello.role() == wire::ROLE_PREFILL;
    views.push_back(
        {.id = id,
         .role = prefill ? scheduling::WorkerRole::kPrefill
                         : scheduling::WorkerRole::kDecode,
         .identity = worker.identity,
         .ready = worker.ready(),
         .waiting_requests = load.waiting_requests(),
         .running_requests = load.running_requests(),
         .queued_prefill_tokens = load.queued_prefill_tokens(),
         .pages_total = load.pages_total(),
         .pages_free = load.pages_free(),
         .own_requests = static_cast<uint32_t>(worker.requests.size()),
         .own_unreported_tokens =
             prefill ? worker.recent_tokens + worker.previous_tokens
                     : worker.unplaced_tokens,
         .max_requests = prefill ? config_.max_requests_per_prefill_worker
                                 : hello.max_num_seqs(),
         .page_tokens = hello.identity().page_tokens(),
         .max_model_len = hello.max_model_len()});
  }
  return views;
}

}  // namespace tidepool::conductor
