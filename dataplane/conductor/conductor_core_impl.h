// State of ConductorCore; included by its own sources only.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataplane/base/random.h"
#include "dataplane/base/wake_queue.h"
#include "dataplane/conductor/conductor_core.h"

namespace tidepool::conductor {

// Requests by arrival: an older one is always served first.
using Handle = uint64_t;

struct Worker {
  enum class State { kBackoff, kConnecting, kGreeting, kUp };

  WorkerStatus status;  // but for what Workers() fills in
  bool named = false;   // by who added it
  State state = State::kBackoff;
  ConnectionId connection = 0;  // 0 in kBackoff
  TimePoint state_deadline{};   // of kBackoff, kConnecting, kGreeting
  TimePoint last_heard{};
  Duration backoff{0};
  uint64_t next_sent = 1, next_received = 1;
  uint64_t identity = 0;  // names its ModelIdentity
  bool load_known = false;
  bool said_loading = false;  // in this connection

  std::set<Handle> requests;  // whose attempt depends on this worker
  // Prompt tokens sent since the last load report and between the last two: a
  // report may have been under way when the request was sent.
  uint64_t recent_tokens = 0, previous_tokens = 0;
  // Of requests whose memory is not certain to be in the report yet.
  uint64_t unplaced_tokens = 0;

  // Greeted, its load known, and not about to go.
  bool ready() const {
    return state == State::kUp && load_known && !status.load.draining() &&
           !status.description.draining() && !switching();
  }
  bool switching() const {
    return status.description.role_state().target() != wire::ROLE_UNSPECIFIED;
  }
  wire::Role role() const { return status.description.role(); }
  bool ready_to_decode() const {
    return ready() && role() == wire::ROLE_DECODE;
  }
};

// A worker's part in the running attempt of a request.
struct Assignment {
  WorkerId worker = 0;
  ConnectionId connection = 0;
};

struct Request {
  Handle handle = 0;
  ClientRequest client;
  RequestRecord record;
  std::vector<int32_t> emitted;
  TimePoint deadline{};

  bool waiting = true;
  TimePoint waiting_since{};
  TimePoint not_before{};                     // backoff
  scheduling::PlacementReason waiting_for{};  // why it is not placed

  uint32_t attempt = 0;
  uint32_t failed_attempts = 0;
  uint32_t peer_failures = 0;
  uint32_t overloads_in_a_row = 0;
  uint32_t hand_backs_in_a_row = 0;
  std::optional<Assignment> prefill, decode;  // decode is set while running
  bool counted_unplaced = false;
  TimePoint progress_deadline{};
  std::optional<uint64_t> identity;  // pinned by the first token
  // Process starts that failed this request.
  std::set<std::pair<WorkerId, uint64_t>> excluded;

  uint32_t context_tokens() const {
    return static_cast<uint32_t>(client.prompt.size() + emitted.size());
  }
};

class ConductorCore::Impl {
 public:
  Impl(ConductorCoreConfig config, const scheduling::PlacementPolicy& placement)
      : config_(std::move(config)),
        placement_(placement),
        random_(config_.seed) {}

  // Fleet (conductor_core_fleet.cc).
  StatusOr<WorkerId> AddWorker(std::string name, std::string address,
                               TimePoint now);
  void RemoveWorker(WorkerId id, TimePoint now);
  void OnConnected(ConnectionId connection, TimePoint now);
  void OnDisconnected(ConnectionId connection, const Status& reason,
                      TimePoint now);
  void OnDescribed(ConnectionId connection,
                   const wire::DescribeResponse& description);
  void OnMessage(ConnectionId connection, const wire::SessionResponse& message,
                 TimePoint now);
  void WakeWorker(WorkerId id, TimePoint now);
  std::vector<WorkerStatus> Workers() const;
  bool Ready() const;
  std::vector<scheduling::WorkerView> Views() const;

  // Requests (conductor_core.cc).
  Status Submit(ClientRequest client, TimePoint now);
  void Cancel(std::string_view id, std::string_view reason, TimePoint now);
  void Shutdown(TimePoint now);
  void WakeRequest(Handle handle, TimePoint now);
  void Tick(TimePoint now);
  TimePoint NextDeadline() const;
  // Starts waiting requests, oldest first, as far as there is room.
  void Dispatch(TimePoint now);
  ConductorStats Stats() const;
  const RequestRecord* Find(std::string_view id) const;

  std::vector<ConductorEffect> effects_;

 private:
  // ---- Fleet ----
  void Connect(Worker& worker, TimePoint now);
  void SendMessage(Worker& worker, wire::SessionRequest message);
  Worker* FindConnection(ConnectionId connection);
  void HandleMessage(Worker& worker, const wire::SessionResponse& message,
                     TimePoint now);
  // A worker has ceased to take requests: those that wait may have less
  // patience from here on.
  void ReviewPatience(TimePoint now);
  // The connection is over: its requests are retried, and it is opened again
  // after a backoff.
  void LoseConnection(Worker& worker, const std::string& reason, TimePoint now);
  // Ends it from our side.
  void Drop(Worker& worker, const std::string& reason, TimePoint now);
  void OnHello(Worker& worker, const wire::WorkerHello& hello, TimePoint now);
  void OnLoad(Worker& worker, const wire::WorkerLoad& load);
  void OnRoleState(Worker& worker, const wire::RoleState& state, TimePoint now);
  // What the worker calls itself, if it may be called so.
  void TakeName(Worker& worker);

  // ---- Attempts (conductor_core_attempts.cc) ----
  void OnOutput(Worker& worker, const wire::RequestOutput& output,
                TimePoint now);
  void OnFailure(Worker& worker, const wire::RequestFailure& failure,
                 TimePoint now);
  void OnHandedOver(Worker& worker, const wire::HandedOver& handed_over,
                    TimePoint now);
  void StartAttempt(Request& request, const scheduling::Placement& placement,
                    TimePoint now);
  wire::RequestHeader HeaderOf(const Request& request, TimePoint now) const;
  // The request with this id if `attempt` is its running one and depends on
  // `worker`, else null.
  Request* FindRunning(const std::string& id, uint32_t attempt,
                       const Worker& worker);
  void Emit(Request& request, const wire::RequestOutput& output, size_t known,
            TimePoint now);
  // Nothing of the running attempt depends on its workers any more. With
  // `cancel`, they are told so.
  void ReleaseWorkers(Request& request, bool cancel, TimePoint now);
  void ReleasePrefill(Request& request);
  void MarkPlaced(Request& request);
  void FailAttempt(Request& request, const std::string& why, TimePoint now);
  void Overloaded(Request& request, const std::string& why, TimePoint now);
  // A worker that drains gave it back.
  void HandedBack(Request& request, const std::string& why, TimePoint now);
  // `worker` prefills the request, and the decode worker has its commit (the
  // answer to which may have been lost): `worker` does not matter any more.
  bool IsPastPrefill(const Request& request, const Worker& worker) const;
  void Exclude(Request& request, const Worker& worker);
  void Wait(Request& request, Duration backoff, TimePoint now);
  void End(Request& request, EndReason reason, std::string message,
           TimePoint now);
  Duration Backoff(uint32_t tries, Duration min, Duration max);
  void Arm(const Request& request);
  // Some ready decode worker could run it if it had room.
  bool ReadyFor(const Request& request) const;
  // When a waiting request is given up: 429 or 503.
  TimePoint PatienceOf(const Request& request) const;

  const ConductorCoreConfig config_;
  const scheduling::PlacementPolicy& placement_;
  Random random_;
  bool shut_down_ = false;

  WorkerId next_worker_ = 1;
  ConnectionId next_connection_ = 1;
  std::map<WorkerId, Worker> workers_;
  std::unordered_map<ConnectionId, WorkerId> connections_;
  WakeQueue<WorkerId> worker_wakes_;

  Handle next_handle_ = 1;
  std::unordered_map<Handle, Request> requests_;
  std::unordered_map<std::string, Handle> handles_;
  std::set<Handle> waiting_;
  WakeQueue<Handle> request_wakes_;
  TimePoint lost_worker_at_{};  // some worker, last
  bool dispatch_ = false;       // something changed for the better

  std::deque<RequestRecord> records_;  // ended, oldest first
  ConductorStats stats_;
};

}  // namespace tidepool::conductor
