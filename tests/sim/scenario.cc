#include "tests/sim/scenario.h"

#include <algorithm>

namespace tidepool::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr int32_t kEos = 0;
constexpr auto kActive = seconds(8);      // load and faults
constexpr auto kPauseMax = seconds(5);    // of a process or a path
constexpr auto kPatience = seconds(150);  // then everything has ended
// Then nothing is left: where a death or a loss left something behind, its
// timeout has passed; otherwise it was told at once.
constexpr auto kCleanUp = seconds(40);
constexpr auto kCleanUpCalm = seconds(1);
constexpr uint64_t kMaxEvents = 3'000'000;

}  // namespace

Scenario::Scenario(uint64_t seed, ScenarioKind kind)
    : kind_(kind), random_(seed), network_(queue_, random_) {
  DrawModel();
  DrawFleet();
  DrawFaults();
  DrawLoad();
  DrawFlips();
}

// ---- Drawn from the seed ----

void Scenario::DrawModel() {
  model_.num_layers = static_cast<int32_t>(Between(1, 4));
  model_.page_tokens = 1 << Between(0, 3);
  engine_.page_tokens = model_.page_tokens;
  engine_.block_tokens = model_.page_tokens << Between(0, 2);
  engine_.max_model_len = static_cast<int32_t>(Between(40, 160));
  engine_.max_num_seqs = static_cast<int32_t>(Between(2, 8));
  engine_.max_num_batched_tokens =
      engine_.max_num_seqs + static_cast<int32_t>(Between(0, 60));
  engine_.max_waiting = random_.Chance(0.2) ? 3 : 64;
  const int32_t largest = engine_.max_model_len / engine_.page_tokens + 2;
  engine_.num_pages =
      largest + static_cast<int32_t>(random_.Below(3 * uint64_t(largest)));
  engine_.growth_pages =
      static_cast<int32_t>(random_.Below(uint64_t(largest) / 2));
  engine_.prefix_caching = random_.Chance(0.8);
  engine_.vocab_size = model_.vocab_size;
  engine_.eos_ids = {kEos};
  engine_.event_log_capacity = 64;
}

void Scenario::DrawFleet() {
  const bool flips = kind_ == ScenarioKind::kFlips;
  const uint64_t num_prefill = flips ? Between(2, 4) : random_.Below(4);
  const uint64_t num_decode = flips ? Between(2, 4) : Between(1, 3);
  weights_ = {1};
  if (!flips && random_.Chance(0.15)) weights_.push_back(2);
  for (uint64_t i = 0; i < num_prefill + num_decode; ++i) {
    auto node = std::make_unique<Node>();
    SimWorkerConfig& config = node->config;
    const bool prefill = i < num_prefill;
    config.role = prefill ? wire::ROLE_PREFILL : wire::ROLE_DECODE;
    config.name = fmt::format("{}-{}", prefill ? "prefill" : "decode",
                              prefill ? i : i - num_prefill);
    config.address = config.name + ":1";
    config.model = model_;
    config.model.weights = weights_[random_.Below(weights_.size())];
    config.engine = engine_;
    config.layer_time = std::chrono::microseconds(Between(20, 3000));
    config.core.reservation_ttl = milliseconds(Between(500, 4000));
    config.core.peer_call_timeout = milliseconds(Between(100, 1500));
    config.core.transfer_timeout = seconds(6);
    if (random_.Chance(0.1)) config.core.max_requests = 6;
    if (random_.Chance(0.1)) config.core.max_ended_attempts = 4;
    nodes_.push_back(std::move(node));
  }
  const uint64_t num_replicas = Between(1, 2);
  for (uint64_t i = 0; i < num_replicas; ++i) {
    auto replica = std::make_unique<Replica>();
    conductor::ConductorCoreConfig& config = replica->config;
    config.conductor_id = fmt::format("conductor-{}", i);
    config.silence_timeout = seconds(3);
    config.connect_timeout = seconds(2);
    config.reconnect_backoff_max = seconds(1);
    config.max_queue_wait = seconds(60);
    config.max_unready_wait = seconds(10);
    config.progress_timeout = seconds(20);
    config.max_attempts = 8;
    config.max_requests_per_prefill_worker =
        static_cast<uint32_t>(Between(1, 16));
    replicas_.push_back(std::move(replica));
  }
}

NetworkConfig Scenario::DrawNetwork() {
  NetworkConfig config;
  config.delay_max = std::chrono::microseconds(Between(100, 30'000));
  config.transfer_delay_max = std::chrono::microseconds(
      Between(100, random_.Chance(0.5) ? 300'000 : 5'000));
  if (result_.calm) return config;
  const auto maybe = [this](double probability) {
    return random_.Chance(0.5) ? probability * random_.Unit() : 0.0;
  };
  config.session_loss = maybe(0.01);
  config.session_repeat = maybe(0.005);
  config.session_break = maybe(0.005);
  config.call_loss = maybe(0.2);
  config.call_repeat = maybe(0.3);
  config.call_error = maybe(0.2);
  config.transfer_error = maybe(0.02);
  config.transfer_corruption = maybe(0.02);
  config.transfer_repeat = maybe(0.3);
  return config;
}

void Scenario::DrawFaults() {
  result_.calm = kind_ == ScenarioKind::kFlips || random_.Chance(0.2);
  network_.config = DrawNetwork();
  if (result_.calm) return;
  if (random_.Chance(0.7)) fault_pause_ = milliseconds(Between(100, 3000));
  if (random_.Chance(0.2)) {
    for (const auto& node : nodes_) node->config.step_error = 0.003;
  }
}

void Scenario::DrawLoad() {
  const uint64_t num_prefixes = Between(1, 4);
  for (uint64_t i = 0; i < num_prefixes; ++i) {
    std::vector<int32_t>& prefix = prefixes_.emplace_back();
    const uint64_t size =
        random_.Below(static_cast<uint64_t>(engine_.max_model_len) - 8);
    for (uint64_t k = 0; k < size; ++k) {
      prefix.push_back(static_cast<int32_t>(random_.Below(64)));
    }
  }
  const uint64_t requests = Between(5, 50);
  const bool burst = random_.Chance(0.3);
  for (uint64_t i = 0; i < requests; ++i) {
    DrawRequest(TimePoint(burst ? RandomDuration(milliseconds(200))
                                : RandomDuration(kActive)));
  }
}

void Scenario::DrawRequest(TimePoint at) {
  auto client = std::make_shared<ClientView>();
  client->id = fmt::format("r{}", next_request_++);
  const std::vector<int32_t>& prefix =
      prefixes_[random_.Below(prefixes_.size())];
  const uint64_t shared = random_.Below(prefix.size() + 1);
  client->prompt.assign(prefix.begin(),
                        prefix.begin() + static_cast<ptrdiff_t>(shared));
  const uint64_t own =
      Between(1, std::min<uint64_t>(engine_.max_model_len - 2 - shared, 40));
  for (uint64_t i = 0; i < own; ++i) {
    client->prompt.push_back(static_cast<int32_t>(random_.Below(64)));
  }
  engine::SamplingParams sampling;
  sampling.seed = random_.Next();
  sampling.max_tokens =
      static_cast<int32_t>(random_.Chance(0.15) ? 1 : Between(1, 50));
  sampling.ignore_eos = random_.Chance(0.5);
  if (random_.Chance(0.2)) {
    sampling.stop_token_ids = {static_cast<int32_t>(Between(1, 63))};
  }
  for (const uint64_t weights : weights_) {
    fakes::FakeModelConfig model = model_;
    model.weights = weights;
    client->expected.push_back(fakes::Oracle(model, client->prompt, sampling,
                                             engine_.eos_ids,
                                             engine_.max_model_len));
  }
  client->short_timeout = kind_ != ScenarioKind::kFlips && random_.Chance(0.05);
  const Duration timeout = client->short_timeout
                               ? RandomDuration(seconds(2)) + milliseconds(1)
                               : Duration(seconds(120));
  const std::string salt = random_.Chance(0.2) ? "other" : "";
  queue_.At(at, [=, this] { Submit(client, sampling, salt, timeout); });
}

// ---- What happens ----

void Scenario::StartWorker(Node& node) {
  node.config.incarnation = next_incarnation_++;
  node.process = std::make_shared<SimWorker>(
      node.config, queue_, random_, network_,
      [this](const std::string& error) { Fail(error); });
  network_.SetAddress(node.config.address, node.process);
}

void Scenario::KillWorker(Node& node) {
  if (!node.process->alive) return;
  node.process->alive = false;
  network_.BreakAllOf(*node.process);
  queue_.In(milliseconds(10) + RandomDuration(seconds(3)),
            [this, &node] { StartWorker(node); });
}

void Scenario::DrainWorker(Node& node) {
  if (!node.process->alive) return;
  node.process->Drain(RandomDuration(seconds(2)));
  // As an orchestrator does: what has not ended in time is killed.
  queue_.In(seconds(2), [this, &node, process = node.process] {
    if (process->alive) KillWorker(node);
  });
}

void Scenario::StartConductor(Replica& replica) {
  replica.config.incarnation = next_incarnation_++;
  replica.config.seed = random_.Next();
  replica.process = std::make_shared<SimConductor>(
      replica.config, queue_, network_,
      [this](const std::string& error) { Fail(error); });
  for (const auto& node : nodes_) {
    replica.process->AddWorker(node->config.name, node->config.address);
  }
}

void Scenario::KillConductor(Replica& replica) {
  if (!replica.process->alive) return;
  replica.process->AbandonClients();
  replica.process->alive = false;
  network_.BreakAllOf(*replica.process);
  queue_.In(milliseconds(10) + RandomDuration(seconds(1)),
            [this, &replica] { StartConductor(replica); });
}

void Scenario::Fault() {
  if (healed_) return;
  Node& node = *nodes_[random_.Below(nodes_.size())];
  Replica& replica = *replicas_[random_.Below(replicas_.size())];
  const TimePoint until = queue_.now() + RandomDuration(kPauseMax);
  switch (random_.Below(10)) {
    case 0:
    case 1:
    case 2:
      KillWorker(node);
      break;
    case 3:
      if (random_.Chance(0.3)) KillConductor(replica);
      break;
    case 4:
    case 5:
      node.process->PauseUntil(until);
      break;
    case 6:
      replica.process->PauseUntil(until);
      break;
    case 7:
      DrainWorker(node);
      break;
    default:
      network_.Partition(node.config.address,
                         nodes_[random_.Below(nodes_.size())]->config.address,
                         until);
      break;
  }
  queue_.In(RandomDuration(2 * fault_pause_), [this] { Fault(); });
}

void Scenario::Submit(const std::shared_ptr<ClientView>& client,
                      const engine::SamplingParams& sampling,
                      const std::string& salt, Duration timeout) {
  const auto process = replicas_[random_.Below(replicas_.size())]->process;
  if (!process->alive || process->paused_until > queue_.now()) {
    return;  // the connection is refused: no request came to be
  }
  clients_.push_back(client);
  client->deadline = queue_.now() + timeout;
  if (!process->Submit(client, sampling, salt, timeout)) {
    return Fail(client->id + ": refused at once");
  }
  if (random_.Chance(0.15)) {
    PostAt(queue_, process, queue_.now() + RandomDuration(seconds(1)),
           [client, process = process.get()] {
             client->cancelled = true;
             process->Cancel(client->id);
           });
  }
}

void Scenario::Heal() {
  healed_ = true;
  result_.calm = true;
  network_.config = DrawNetwork();
  for (const auto& node : nodes_) node->config.step_error = 0;
  leaders_.push_back({.term = ++last_term_});
  RestoreRoles();
}

// ---- The run ----

ScenarioResult Scenario::Run() {
  const bool calm = result_.calm;
  result_.description = fmt::format(
      "{} conductors, {} workers, {} weights, {} layers, pages of {}, {} "
      "pages, {} places, {}, {}",
      replicas_.size(), nodes_.size(), weights_.size(), model_.num_layers,
      model_.page_tokens, engine_.num_pages, engine_.max_num_seqs,
      calm ? "calm" : "faulty",
      flip_pause_ > Duration(0) ? "roles change" : "roles stay");
  for (const auto& node : nodes_) StartWorker(*node);
  for (const auto& replica : replicas_) StartConductor(*replica);
  if (fault_pause_ > Duration(0)) {
    queue_.In(RandomDuration(2 * fault_pause_), [this] { Fault(); });
  }
  if (flip_pause_ > Duration(0)) {
    queue_.In(RandomDuration(2 * flip_pause_), [this] { Flip(); });
  }
  RunUntil(TimePoint(kActive));
  Heal();
  result_.calm = calm;
  const TimePoint end(kActive + kPatience);
  while (queue_.now() < end && !AllEnded()) {
    RunUntil(std::min(end, queue_.now() + milliseconds(100)));
  }
  CheckClients();
  RunUntil(queue_.now() + (calm ? kCleanUpCalm : kCleanUp));
  CheckQuiet();
  Count();
  return result_;
}

void Scenario::RunUntil(TimePoint end) {
  while (result_.error.empty() && queue_.RunNext(end)) {
    if (++result_.events % 128 == 0) CheckEngines();
    if (result_.events > kMaxEvents) return Fail("it never comes to rest");
  }
}

bool Scenario::AllEnded() const {
  return !result_.error.empty() ||
         std::ranges::all_of(clients_, [](const auto& client) {
           return client->abandoned || client->ends > 0;
         });
}

void Scenario::Fail(const std::string& error) {
  if (!result_.error.empty()) return;
  result_.error =
      fmt::format("at {:.6f} s: {}",
                  Seconds(queue_.now().time_since_epoch()).count(), error);
}

void Scenario::CheckEngines() {
  for (const auto& node : nodes_) {
    const Status status = node->process->CheckInvariants();
    if (!status.ok()) {
      Fail(fmt::format("{}: {}", node->config.name, MessageOf(status)));
    }
  }
}

void Scenario::CheckClients() {
  using conductor::EndReason;
  for (const auto& client : clients_) {
    if (client->abandoned) continue;
    if (client->ends != 1) {
      Fail(fmt::format("{}: {} ends", client->id, client->ends));
      continue;
    }
    // While its conductor is paused, nobody can tell the client.
    const TimePoint pauses_over(kActive + kPauseMax);
    if (client->ended > std::max(client->deadline, pauses_over) + seconds(1)) {
      Fail(fmt::format("{}: ended long after its timeout: {}", client->id,
                       client->journal));
    }
    const bool fine =
        client->reason == EndReason::kFinished ||
        client->reason == EndReason::kCancelled ||
        (client->reason == EndReason::kExpired && client->short_timeout);
    const bool excusable = !result_.calm &&
                           client->reason != EndReason::kInvalid &&
                           client->reason != EndReason::kExpired &&
                           client->reason != EndReason::kShutdown;
    if (!fine && !excusable) {
      Fail(fmt::format("{}: {} ({}); {}", client->id, NameOf(client->reason),
                       client->message, client->journal));
    }
  }
}

void Scenario::CheckQuiet() {
  CheckRoles();
  for (const auto& node : nodes_) {
    const Status status = node->process->CheckQuiet();
    if (!status.ok()) Fail(std::string(MessageOf(status)));
  }
  for (const auto& replica : replicas_) {
    const conductor::ConductorStats stats = replica->process->core().Stats();
    if (stats.requests != 0) {
      Fail(fmt::format("{}: {} requests are left", replica->config.conductor_id,
                       stats.requests));
    }
    for (const conductor::WorkerStatus& worker :
         replica->process->core().Workers()) {
      if (!worker.connected) {
        Fail(fmt::format("{}: no session with {}: {}",
                         replica->config.conductor_id, worker.name,
                         worker.last_failure));
      }
      if (worker.own_requests != 0) {
        Fail(fmt::format("{}: {} requests are booked on {}",
                         replica->config.conductor_id, worker.own_requests,
                         worker.name));
      }
    }
  }
}

void Scenario::Count() {
  for (const auto& client : clients_) {
    ++result_.requests;
    if (client->abandoned) {
      ++result_.abandoned;
    } else if (client->reason == conductor::EndReason::kFinished) {
      ++result_.finished;
      if (client->attempts > 1) ++result_.migrated;
    } else if (client->reason == conductor::EndReason::kCancelled) {
      ++result_.cancelled;
    } else {
      ++result_.failed[std::string(NameOf(client->reason))];
    }
  }
  for (const auto& node : nodes_) {
    const worker::WorkerCoreStats core = node->process->core().Stats();
    result_.handed_over += core.handed_over_total;
    result_.flips += core.role_switches_total;
    const engine::EngineStats stats = node->process->engine_stats();
    result_.preemptions += static_cast<uint64_t>(stats.preemptions);
    result_.prefix_hit_tokens += static_cast<uint64_t>(stats.prefix_hit_tokens);
  }
  for (const auto& replica : replicas_) {
    const conductor::ConductorStats stats = replica->process->core().Stats();
    result_.handed_back += stats.hand_backs;
    result_.retries += stats.retries;
  }
}

}  // namespace tidepool::sim
