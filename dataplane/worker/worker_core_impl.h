// State of WorkerCore; included by its own sources only.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataplane/base/wake_queue.h"
#include "dataplane/engine/engine_core.h"
#include "dataplane/worker/worker_core.h"
#include "dataplane/worker/worker_core_convert.h"

namespace tidepool::worker {

// One attempt of a request on this worker; also its sequence in the engine,
// its grant, and its stream.
using TaskId = uint64_t;

struct Session {
  std::string conductor_id;
  uint64_t incarnation = 0;
  uint64_t next_received = 2;  // the hello was 1
  uint64_t next_sent = 1;
  std::set<TaskId> tasks;
};

// The handover as the prefill worker sees it.
struct Handover {
  wire::DecodePeer peer;
  wire::GenerationRequest request;  // for Reserve and its renewals

  bool started = false;  // in a step; the peer has been asked
  // The peer may hold a reservation, so that it must be told of a failure.
  bool peer_may_hold = false;
  std::optional<wire::ReserveResponse> reserved;
  std::optional<wire::RequestOutput> first_output;  // the prefill is done
  uint32_t prefill_tokens = 0;

  bool stream_open = false;  // some memory may be read for it
  bool stream_closing = false;
  std::vector<uint64_t> checksums;  // per extent, as acknowledged
  uint64_t acknowledged = 0;
  std::string transport;
  bool committed = false;

  // At most one call is under way or due to be repeated.
  PeerCallId call = 0;
  uint32_t call_tries = 0;
  std::optional<TimePoint> retry_at, renew_at, transfer_deadline;
};

// The handover as the decode worker sees it.
struct Reception {
  enum class Phase { kGranting, kReserved, kSealing, kActive };
  Phase phase = Phase::kGranting;
  uint64_t sender_incarnation = 0;
  uint32_t present_tokens = 0;
  wire::TransferCapability capability;  // from kReserved on
  bool revoking = false;
  bool writable = true;  // until the grant is proven to be over
  TimePoint expires{};
  std::vector<IncomingCallId> calls;  // that wait for this phase's end
  wire::CommitRequest commit;         // in kSealing
};

struct Task {
  TaskId id = 0;
  std::string key;  // of the request, over all conductors
  wire::RequestHeader header;
  SessionId session = 0;
  TimePoint deadline{};
  // Nothing is owed to the conductor any more; what is left is to clean up.
  bool ended = false;
  // Set by role; neither: the whole request runs here.
  std::unique_ptr<Handover> handover;
  std::unique_ptr<Reception> reception;
};

class WorkerCore::Impl {
 public:
  Impl(WorkerCoreConfig config, engine::EngineCore& engine)
      : config_(std::move(config)), engine_(engine) {
    role_.set_role(config_.description.role());
  }

  // Sessions and time (worker_core.cc).
  void OnSessionMessage(SessionId id, const wire::SessionRequest& message,
                        TimePoint now);
  void OnSessionClosed(SessionId id, TimePoint now);
  void OnStepDone(const Status& status, const engine::StepResult& result,
                  TimePoint now);
  void Tick(TimePoint now);
  TimePoint NextDeadline() const;
  // To be called after every input: starts a step, reports the load.
  void Settle(TimePoint now);
  bool Idle() const { return tasks_.empty(); }
  wire::DescribeResponse Describe() const;
  const wire::RoleState& role_state() const { return role_; }
  WorkerCoreStats Stats() const;

  // Role (worker_core_role.cc).
  StatusOr<wire::RoleState> SetRole(const wire::SetRoleRequest& request,
                                    TimePoint now);
  void Drain(Duration timeout, TimePoint now);

  // Decode side (worker_core_receive.cc).
  void OnReserve(IncomingCallId call, const wire::ReserveRequest& request,
                 TimePoint now);
  void OnCommit(IncomingCallId call, const wire::CommitRequest& request);
  void OnAbort(IncomingCallId call, const wire::AbortRequest& request,
               TimePoint now);
  void OnGranted(GrantId grant,
                 const StatusOr<wire::TransferCapability>& capability,
                 TimePoint now);
  void OnRevoked(GrantId grant, const transfer::Received& received,
                 TimePoint now);

  // Prefill side (worker_core_handover.cc).
  void OnPeerReply(PeerCallId call, const StatusOr<PeerResponse>& response,
                   TimePoint now);
  void OnSlicesSent(const SlicesSent& sent, TimePoint now);
  void OnStreamClosed(StreamId stream, TimePoint now);

  std::vector<WorkerEffect> effects_;

 private:
  // ---- Sessions ----
  void OnHello(SessionId id, const wire::SessionRequest& message,
               TimePoint now);
  void OnSubmit(SessionId id, const wire::SubmitRequest& submit, TimePoint now);
  void OnCancel(const Session& session, const wire::CancelRequest& cancel,
                TimePoint now);
  void CloseSession(SessionId id, TimePoint now);
  void EndSessionFor(SessionId id, const Status& reason, TimePoint now);
  void Send(SessionId id, wire::SessionResponse message);
  wire::WorkerLoad Load() const;
  void ReportLoad(TimePoint now);

  // ---- Role ----
  // Whether work of this role is taken now. Errors: kResourceExhausted.
  Status Accepts(wire::Role work) const;
  // Hands back what is late, and ends a switch with nothing left to wait for.
  void AdvanceRole(TimePoint now);
  void HandBack(TimePoint now);
  void TellRole();

  // ---- Attempts ----
  struct Ended {
    uint32_t attempt = 0;
    bool committed = false;
  };
  static std::string KeyOf(const wire::RequestHeader& header);
  // Null if the newest attempt of the request that is alive is not `attempt`.
  Task* FindLive(const wire::RequestHeader& header);
  const Ended* FindEnded(const std::string& key) const;
  void RememberEnded(const std::string& key, uint32_t attempt, bool committed);
  // Ends an older attempt that is alive. Errors: kFailedPrecondition if
  // this attempt is not newer than all seen, kResourceExhausted.
  Status AdmitAttempt(const wire::RequestHeader& header, TimePoint now);
  Task& AddTask(const wire::RequestHeader& header, SessionId session,
                TimePoint now);
  // The last that the conductor hears of the task; then it is cleaned up.
  void Fail(Task& task, wire::RequestFailure::Kind kind,
            const std::string& message, TimePoint now);
  void Refuse(SessionId session, const wire::RequestHeader& header,
              wire::RequestFailure::Kind kind, const std::string& message);
  // Nothing is sent for the task any more; frees what it holds as soon as no
  // transfer touches it. May delete `task`.
  void End(Task& task, TimePoint now);
  void EndHandover(Task& task, TimePoint now);
  void EndReception(Task& task);
  void Erase(Task& task);
  void WakeTask(TaskId id, TimePoint now);
  void Arm(const Task& task);

  // ---- Steps ----
  void StartStep(TimePoint now);
  void OnEngineOutput(const engine::EngineOutput& output, TimePoint now,
                      std::map<SessionId, wire::StepOutputs>& outputs);

  // The step in flight took `time`.
  void MeasurePrefill(Duration time);

  // ---- Handover ----
  void BeginHandover(Task& task, const engine::SequenceStep& step,
                     TimePoint now);
  void Call(Task& task, PeerRequest request, TimePoint deadline);
  void CallReserve(Task& task, TimePoint now);
  void CallCommit(Task& task, TimePoint now);
  void CallAbort(Task& task, TimePoint now);
  void RepeatCall(Task& task, TimePoint now);
  void OnReserved(Task& task, const wire::ReserveResponse& response,
                  TimePoint now);
  Status CheckReserved(const Task& task,
                       const wire::ReserveResponse& response) const;
  void OnPeerError(Task& task, const Status& error, TimePoint now);
  void CloseStreamOf(Task& task);
  // Commits as soon as the prefill is done and every slice acknowledged.
  void TryCommit(Task& task, TimePoint now);

  // ---- Reception ----
  void Reply(IncomingCallId call, StatusOr<PeerResponse> response);
  void ReplyAll(Reception& reception, const StatusOr<PeerResponse>& response);
  void Revoke(Task& task);
  void Activate(Task& task, const transfer::Received& received, TimePoint now);
  SessionId SessionOf(const wire::RequestHeader& header) const;

  const WorkerCoreConfig config_;
  engine::EngineCore& engine_;
  wire::RoleState role_;
  bool draining_ = false;
  // When what is left of the old role, or of all work, is handed back.
  TimePoint hand_back_at_ = TimePoint::max();
  bool step_in_flight_ = false;
  TimePoint step_started_{};
  int64_t step_prompt_tokens_ = 0;
  // Of the last seconds spent on prompts.
  double prefilled_tokens_ = 0, prefill_seconds_ = 0;

  std::map<SessionId, Session> sessions_;
  std::map<std::string, SessionId> conductors_;  // by conductor_id

  TaskId next_task_ = 1;
  PeerCallId next_call_ = 1;
  std::unordered_map<TaskId, Task> tasks_;
  std::unordered_map<std::string, TaskId> live_;  // newest attempt, not ended
  std::unordered_map<PeerCallId, TaskId> calls_;
  std::unordered_map<std::string, Ended> ended_;
  std::deque<std::string> ended_order_;
  WakeQueue<TaskId> wakes_;

  wire::WorkerLoad last_load_;
  TimePoint load_sent_{}, load_checked_{};
  bool touched_ = false;  // some input came since load_checked_

  WorkerCoreStats stats_;
};

}  // namespace tidepool::worker
