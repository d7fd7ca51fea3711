// What lies between processes: sessions, calls and transfers that are slow,
// lost, repeated and reordered.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/random.h"
#include "dataplane/worker/worker_core.h"
#include "tests/sim/event_queue.h"

namespace tidepool::sim {

namespace wire = ::tidepool::worker::v1;

class SimWorker;
class SimConductor;

// Probabilities are per message, call or submission.
struct NetworkConfig {
  Duration delay_min = std::chrono::microseconds(50);
  Duration delay_max = std::chrono::milliseconds(5);
  Duration transfer_delay_max = std::chrono::milliseconds(5);
  double session_loss = 0;    // a message vanishes: a gap
  double session_repeat = 0;  // a message comes twice: a gap as well
  double session_break = 0;   // the stream ends with this message
  double call_loss = 0;       // the request or the answer vanishes
  double call_repeat = 0;     // the request comes again, perhaps much later
  double call_error = 0;      // UNAVAILABLE, though it may have been delivered
  double transfer_error = 0;
  double transfer_corruption = 0;  // silent: only the digest can tell
  double transfer_repeat = 0;      // delivered twice
};

// One stream between a conductor and a worker.
struct Stream {
  uint64_t id = 0;  // the worker's SessionId
  uint64_t connection = 0;
  std::weak_ptr<SimConductor> conductor;  // they hold it
  std::weak_ptr<SimWorker> worker;
  bool open = true;
  TimePoint last_to_worker{}, last_to_conductor{};  // streams keep order
};

class SimNetwork {
 public:
  SimNetwork(EventQueue& queue, Random& random)
      : queue_(queue), random_(random) {}

  NetworkConfig config;

  // ---- Who is where ----
  void SetAddress(const std::string& address,
                  std::shared_ptr<SimWorker> worker) {
    workers_[address] = std::move(worker);
  }
  std::shared_ptr<SimWorker> WorkerAt(const std::string& address) const;
  // No calls or transfers between the two until then.
  void Partition(const std::string& a, const std::string& b, TimePoint until);

  // ---- Sessions ----
  void Connect(std::shared_ptr<SimConductor> conductor, uint64_t connection,
               const std::string& address);
  void ToWorker(const std::shared_ptr<Stream>& stream,
                wire::SessionRequest message);
  void ToConductor(const std::shared_ptr<Stream>& stream,
                   wire::SessionResponse message);
  // Ends the stream; each side hears of it some time later, if it is told.
  void Break(const std::shared_ptr<Stream>& stream, bool tell_worker,
             bool tell_conductor, const std::string& reason);
  // Ends every stream of a process that died or is to be cut off.
  void BreakAllOf(const Process& process);

  // ---- Calls ----
  void Call(std::shared_ptr<SimWorker> caller, const worker::CallPeer& call);
  void Answer(worker::IncomingCallId call,
              const StatusOr<worker::PeerResponse>& response);

  // ---- Transfers ----
  void Transfer(std::shared_ptr<SimWorker> sender,
                const worker::SliceSubmission& submission);

  Duration Delay();
  // Of one transfer, or of what it takes to prove that none is under way.
  Duration TransferDelay();

 private:
  struct Rpc {
    std::shared_ptr<SimWorker> caller;
    worker::PeerCallId call = 0;
    bool done = false;
  };

  void Deliver(const std::shared_ptr<Rpc>& rpc, const std::string& address,
               const worker::PeerRequest& request, Duration delay);
  void Finish(const std::shared_ptr<Rpc>& rpc,
              const StatusOr<worker::PeerResponse>& response, Duration delay);
  bool Cut(const std::string& a, const std::string& b) const;
  void DeliverSlices(const std::shared_ptr<SimWorker>& sender,
                     const worker::SliceSubmission& submission);

  EventQueue& queue_;
  Random& random_;
  std::map<std::string, std::shared_ptr<SimWorker>> workers_;
  std::map<std::pair<std::string, std::string>, TimePoint> partitions_;
  uint64_t next_stream_ = 1;
  std::vector<std::weak_ptr<Stream>> streams_;
  worker::IncomingCallId next_incoming_ = 1;
  std::map<worker::IncomingCallId, std::shared_ptr<Rpc>> incoming_;
};

}  // namespace tidepool::sim
