#include "tests/sim/sim_conductor.h"

#include <algorithm>

namespace tidepool::sim {
namespace {

wire::SamplingParams WireOf(const engine::SamplingParams& from) {
  wire::SamplingParams to;
  to.set_temperature(from.temperature);
  to.set_top_k(from.top_k);
  to.set_top_p(from.top_p);
  to.set_min_p(from.min_p);
  to.set_repetition_penalty(from.repetition_penalty);
  to.set_seed(from.seed);
  to.set_logprobs(from.logprobs);
  to.set_prompt_logprobs(from.prompt_logprobs);
  to.set_max_tokens(from.max_tokens);
  to.set_ignore_eos(from.ignore_eos);
  to.mutable_stop_token_ids()->Add(from.stop_token_ids.begin(),
                                   from.stop_token_ids.end());
  return to;
}

}  // namespace

SimConductor::SimConductor(conductor::ConductorCoreConfig config,
                           EventQueue& queue, SimNetwork& network,
                           Report report)
    : queue_(queue),
      network_(network),
      report_(std::move(report)),
      core_(std::move(config), placement_) {}

void SimConductor::AddWorker(const std::string& name,
                             const std::string& address) {
  if (!core_.AddWorker(name, address, queue_.now()).ok()) {
    report_("AddWorker failed");
  }
  Settle();
}

void SimConductor::OnConnected(const std::shared_ptr<Stream>& stream) {
  streams_[stream->connection] = stream;
  core_.OnConnected(stream->connection, queue_.now());
  Settle();
}

void SimConductor::OnDisconnected(uint64_t connection, const Status& reason) {
  streams_.erase(connection);
  core_.OnDisconnected(connection, reason, queue_.now());
  Settle();
}

void SimConductor::OnMessage(const std::shared_ptr<Stream>& stream,
                             const wire::SessionResponse& message) {
  core_.OnMessage(stream->connection, message, queue_.now());
  Settle();
}

bool SimConductor::Submit(const std::shared_ptr<ClientView>& client,
                          const engine::SamplingParams& sampling,
                          const std::string& salt, Duration timeout) {
  conductor::ClientRequest request{.id = client->id,
                                   .prompt = client->prompt,
                                   .sampling = WireOf(sampling),
                                   .tenant_salt = salt,
                                   .timeout = timeout};
  clients_[client->id] = client;
  const Status accepted = core_.Submit(std::move(request), queue_.now());
  if (!accepted.ok()) clients_.erase(client->id);
  Settle();
  return accepted.ok();
}

void SimConductor::Cancel(const std::string& id) {
  core_.Cancel(id, "the client left", queue_.now());
  Settle();
}

void SimConductor::AbandonClients() {
  for (const auto& [id, client] : clients_) {
    if (client->ends == 0) client->abandoned = true;
  }
}

void SimConductor::Settle() {
  while (true) {
    const std::vector<conductor::ConductorEffect> effects = core_.TakeEffects();
    if (effects.empty()) break;
    for (const conductor::ConductorEffect& effect : effects) Perform(effect);
  }
  ScheduleTick();
}

void SimConductor::Perform(const conductor::ConductorEffect& effect) {
  if (const auto* connect = std::get_if<conductor::ConnectWorker>(&effect)) {
    network_.Connect(std::static_pointer_cast<SimConductor>(shared_from_this()),
                     connect->connection, connect->address);
  } else if (const auto* disconnect =
                 std::get_if<conductor::DisconnectWorker>(&effect)) {
    const auto it = streams_.find(disconnect->connection);
    if (it == streams_.end()) return;
    network_.Break(it->second, true, false, disconnect->reason);
    streams_.erase(it);
  } else if (const auto* send = std::get_if<conductor::SendToWorker>(&effect)) {
    const auto it = streams_.find(send->connection);
    if (it != streams_.end()) network_.ToWorker(it->second, send->message);
  } else if (const auto* emit = std::get_if<conductor::EmitOutput>(&effect)) {
    OnOutput(*emit);
  } else {
    OnEnd(std::get<conductor::EndRequest>(effect));
  }
}

void SimConductor::OnOutput(const conductor::EmitOutput& emit) {
  ClientView& client = *clients_.at(emit.request_id);
  if (client.ends > 0) return report_(client.id + ": output after the end");
  if (client.finish_reason_seen) {
    return report_(client.id + ": output after the finish reason");
  }
  if (emit.output.first_index() != client.received.size()) {
    return report_(fmt::format("{}: output {} where {} was due", client.id,
                               emit.output.first_index(),
                               client.received.size()));
  }
  for (const int32_t token : emit.output.tokens()) {
    const size_t index = client.received.size();
    client.received.push_back(token);
    std::erase_if(client.expected, [&](const fakes::OracleOutput& expected) {
      return index >= expected.tokens.size() || expected.tokens[index] != token;
    });
    if (client.expected.empty()) {
      const conductor::RequestRecord* record = core_.Find(client.id);
      return report_(fmt::format("{}: token {} is {}, not as expected; {}",
                                 client.id, index, token,
                                 record == nullptr ? "" : record->Explain()));
    }
  }
  client.finish_reason_seen =
      emit.output.finish_reason() != wire::FINISH_REASON_UNSPECIFIED;
  if (!client.finish_reason_seen) return;
  const bool stopped = emit.output.finish_reason() == wire::FINISH_REASON_STOP;
  std::erase_if(client.expected, [&](const fakes::OracleOutput& expected) {
    return expected.tokens != client.received || expected.stopped != stopped;
  });
  if (client.expected.empty()) report_(client.id + ": finished wrongly");
}

void SimConductor::OnEnd(const conductor::EndRequest& end) {
  ClientView& client = *clients_.at(end.request_id);
  client.ended = queue_.now();
  client.reason = end.reason;
  client.message = end.message;
  client.journal = end.record.Explain();
  client.attempts = static_cast<uint32_t>(end.record.attempts.size());
  if (++client.ends > 1) return report_(client.id + ": ended twice");
  const bool finished = end.reason == conductor::EndReason::kFinished;
  if (finished != client.finish_reason_seen) {
    return report_(client.id + ": finish reason and end disagree");
  }
  if (end.reason == conductor::EndReason::kCancelled && !client.cancelled) {
    return report_(client.id + ": cancelled by nobody");
  }
}

void SimConductor::ScheduleTick() {
  const TimePoint at = core_.NextDeadline();
  if (at >= tick_at_) return;
  tick_at_ = at;
  PostAt(queue_, shared_from_this(), at, [this, at] {
    if (tick_at_ != at) return;  // an earlier one took its place
    tick_at_ = TimePoint::max();
    core_.Tick(queue_.now());
    Settle();
  });
}

}  // namespace tidepool::sim
