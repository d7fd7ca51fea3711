#include "tests/sim/sim_network.h"

#include <algorithm>

#include "tests/sim/sim_conductor.h"
#include "tests/sim/sim_worker.h"

namespace tidepool::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

Duration SimNetwork::Delay() {
  const auto spread =
      static_cast<uint64_t>((config.delay_max - config.delay_min).count());
  return config.delay_min + Duration(random_.Below(spread + 1));
}

Duration SimNetwork::TransferDelay() {
  return Duration(random_.Below(
      static_cast<uint64_t>(config.transfer_delay_max.count()) + 1));
}

std::shared_ptr<SimWorker> SimNetwork::WorkerAt(
    const std::string& address) const {
  const auto it = workers_.find(address);
  return it != workers_.end() && it->second->alive ? it->second : nullptr;
}

void SimNetwork::Partition(const std::string& a, const std::string& b,
                           TimePoint until) {
  partitions_[std::minmax(a, b)] = until;
}

bool SimNetwork::Cut(const std::string& a, const std::string& b) const {
  const auto it = partitions_.find(std::minmax(a, b));
  return it != partitions_.end() && it->second > queue_.now();
}

// ---- Sessions ----

void SimNetwork::Connect(std::shared_ptr<SimConductor> conductor,
                         uint64_t connection, const std::string& address) {
  PostAt(queue_, conductor, queue_.now() + Delay(), [=, this] {
    const std::shared_ptr<SimWorker> worker = WorkerAt(address);
    if (worker == nullptr) {
      return conductor->OnDisconnected(connection,
                                       Unavailable("connection refused"));
    }
    auto stream = std::make_shared<Stream>();
    stream->id = next_stream_++;
    stream->connection = connection;
    stream->conductor = conductor;
    stream->worker = worker;
    streams_.push_back(stream);
    conductor->OnConnected(stream);
  });
}

void SimNetwork::ToWorker(const std::shared_ptr<Stream>& stream,
                          wire::SessionRequest message) {
  if (!stream->open) return;
  if (random_.Chance(config.session_loss)) return;
  if (random_.Chance(config.session_break)) {
    return Break(stream, true, true, "broken");
  }
  const std::shared_ptr<SimWorker> worker = stream->worker.lock();
  if (worker == nullptr) return;
  for (int i = random_.Chance(config.session_repeat) ? 2 : 1; i > 0; --i) {
    stream->last_to_worker =
        std::max(stream->last_to_worker, queue_.now() + Delay());
    PostAt(queue_, worker, stream->last_to_worker,
           [stream, worker = worker.get(), message] {
             if (stream->open) worker->OnSessionMessage(stream, message);
           });
  }
}

void SimNetwork::ToConductor(const std::shared_ptr<Stream>& stream,
                             wire::SessionResponse message) {
  if (!stream->open) return;
  if (random_.Chance(config.session_loss)) return;
  if (random_.Chance(config.session_break)) {
    return Break(stream, true, true, "broken");
  }
  const std::shared_ptr<SimConductor> conductor = stream->conductor.lock();
  if (conductor == nullptr) return;
  for (int i = random_.Chance(config.session_repeat) ? 2 : 1; i > 0; --i) {
    stream->last_to_conductor =
        std::max(stream->last_to_conductor, queue_.now() + Delay());
    PostAt(queue_, conductor, stream->last_to_conductor,
           [stream, conductor = conductor.get(), message] {
             if (stream->open) conductor->OnMessage(stream, message);
           });
  }
}

void SimNetwork::Break(const std::shared_ptr<Stream>& stream, bool tell_worker,
                       bool tell_conductor, const std::string& reason) {
  if (!std::exchange(stream->open, false)) return;
  if (const auto worker = stream->worker.lock(); tell_worker && worker) {
    PostAt(queue_, worker, queue_.now() + Delay(),
           [stream, worker = worker.get()] {
             worker->OnSessionClosed(stream->id);
           });
  }
  if (const auto conductor = stream->conductor.lock();
      tell_conductor && conductor) {
    PostAt(queue_, conductor, queue_.now() + Delay(),
           [stream, conductor = conductor.get(), reason] {
             conductor->OnDisconnected(stream->connection,
                                       Unavailable("{}", reason));
           });
  }
}

void SimNetwork::BreakAllOf(const Process& process) {
  std::erase_if(streams_, [&](const std::weak_ptr<Stream>& weak) {
    const std::shared_ptr<Stream> stream = weak.lock();
    if (stream == nullptr || !stream->open) return true;
    const std::shared_ptr<Process> ends[] = {stream->worker.lock(),
                                             stream->conductor.lock()};
    if (std::ranges::none_of(
            ends, [&](const auto& end) { return end.get() == &process; })) {
      return false;
    }
    // The kernel says goodbye for a dead process, but not for a dead machine:
    // then only silence tells, and TCP keepalive after a while.
    if (random_.Chance(0.7)) {
      Break(stream, true, true, "reset");
    } else {
      queue_.In(seconds(8), [this, stream] {
        Break(stream, true, true, "keepalive failed");
      });
    }
    return true;
  });
}

// ---- Calls ----

void SimNetwork::Call(std::shared_ptr<SimWorker> caller,
                      const worker::CallPeer& call) {
  auto rpc = std::make_shared<Rpc>();
  rpc->caller = caller;
  rpc->call = call.call;
  queue_.At(call.deadline, [this, rpc] {
    Finish(rpc, DeadlineExceeded("no answer in time"), Duration(0));
  });
  if (Cut(caller->config().address, call.address)) return;
  if (random_.Chance(config.call_error)) {
    Finish(rpc, Unavailable("connection lost"), Delay());
    if (random_.Chance(0.5)) return;
  }
  if (!random_.Chance(config.call_loss)) {
    Deliver(rpc, call.address, call.request, Delay());
  }
  if (random_.Chance(config.call_repeat)) {
    Deliver(rpc, call.address, call.request,
            Duration(random_.Below(12'000'000'000)));
  }
}

void SimNetwork::Deliver(const std::shared_ptr<Rpc>& rpc,
                         const std::string& address,
                         const worker::PeerRequest& request, Duration delay) {
  queue_.In(delay, [=, this] {
    const std::shared_ptr<SimWorker> target = WorkerAt(address);
    if (target == nullptr) {
      return Finish(rpc, Unavailable("connection refused"), Delay());
    }
    const worker::IncomingCallId incoming = next_incoming_++;
    incoming_[incoming] = rpc;
    PostAt(queue_, target, queue_.now(),
           [target = target.get(), incoming, request] {
             target->OnPeerCall(incoming, request);
           });
  });
}

void SimNetwork::Answer(worker::IncomingCallId call,
                        const StatusOr<worker::PeerResponse>& response) {
  const auto it = incoming_.find(call);
  if (it == incoming_.end()) return;
  const std::shared_ptr<Rpc> rpc = it->second;
  incoming_.erase(it);
  if (!random_.Chance(config.call_loss)) Finish(rpc, response, Delay());
}

void SimNetwork::Finish(const std::shared_ptr<Rpc>& rpc,
                        const StatusOr<worker::PeerResponse>& response,
                        Duration delay) {
  PostAt(queue_, rpc->caller, queue_.now() + delay, [rpc, response] {
    if (std::exchange(rpc->done, true)) return;
    rpc->caller->OnPeerReply(rpc->call, response);
  });
}

// ---- Transfers ----

void SimNetwork::Transfer(std::shared_ptr<SimWorker> sender,
                          const worker::SliceSubmission& submission) {
  PostAt(queue_, sender, queue_.now() + Delay(),
         [=, this] { DeliverSlices(sender, submission); });
}

void SimNetwork::DeliverSlices(const std::shared_ptr<SimWorker>& sender,
                               const worker::SliceSubmission& submission) {
  auto slices = sender->ReadSlices(submission);
  const auto complete = [&](Duration delay, const Status& status) {
    PostAt(queue_, sender, queue_.now() + delay,
           [sender = sender.get(), submission, status,
            sent = slices.value_or(std::vector<std::vector<uint64_t>>())] {
             sender->OnTransferDone(submission, status, sent);
           });
  };
  if (!slices.has_value()) {
    return complete(Duration(0), MakeError(Code::kCancelled, "closed"));
  }
  const std::string& address = submission.target->transfer_address;
  const std::shared_ptr<SimWorker> target = WorkerAt(address);
  if (target == nullptr || Cut(sender->config().address, address)) {
    return complete(seconds(2), Unavailable("the peer cannot be reached"));
  }
  if (random_.Chance(config.transfer_error)) {
    return complete(Delay(), Unavailable("connection lost"));
  }
  std::vector<std::vector<uint64_t>> arriving = *slices;
  if (random_.Chance(config.transfer_corruption)) {
    arriving.back().back() ^= 1ull << random_.Below(64);
  }
  const Status written = target->WriteSlices(submission, arriving);
  complete(Delay(), written);
  if (random_.Chance(config.transfer_repeat)) {
    // Bytes of a connection given up, which arrive all the same.
    queue_.In(Duration(random_.Below(200'000'000)),
              [target, submission, arriving] {
                if (!target->alive) return;
                (void)target->WriteSlices(submission, arriving);
              });
  }
}

}  // namespace tidepool::sim
