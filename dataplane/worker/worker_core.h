// The worker's protocol as a deterministic state machine (DESIGN §1, §3, §4):
// sessions with conductors, requests in the engine, and the handover of KV
// between a prefill worker and a decode worker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/engine/step_plan.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/worker/worker_core_streams.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::engine {
class EngineCore;
}

namespace tidepool::worker {

namespace wire = ::tidepool::worker::v1;

// One conductor's stream; chosen by the shell, never reused.
using SessionId = uint64_t;
// One RPC to another worker; chosen by the core, never reused.
using PeerCallId = uint64_t;
// One RPC from another worker; chosen by the shell, never reused.
using IncomingCallId = uint64_t;
// One grant of our memory; chosen by the core, never reused. (The messenger
// names capabilities by ids of its own.)
using GrantId = uint64_t;

struct WorkerCoreConfig {
  // What the hello says; `incarnation`, `role`, `identity`, `max_model_len`
  // and `max_num_seqs` are used by the core as well.
  wire::DescribeResponse description;
  uint64_t slice_bytes = 0;  // of the engine's KvLayout

  uint32_t max_sessions = 64;  // further hellos are refused
  // Submitted and reserved together; more are refused as overload.
  uint32_t max_requests = 4096;
  // Ended attempts remembered so that late repeats are refused; the oldest is
  // forgotten first, and a repeat of it would run again and be cancelled by
  // its conductor, which no longer knows the attempt.
  uint32_t max_ended_attempts = 16384;
  uint32_t max_pending_replies = 4;  // repeated calls waiting for one answer

  // A reservation lives this long after the last Reserve for it; the prefill
  // worker renews at a third of it.
  Duration reservation_ttl = std::chrono::seconds(30);
  Duration peer_call_timeout = std::chrono::seconds(5);
  uint32_t peer_call_attempts = 3;
  Duration peer_retry_backoff = std::chrono::milliseconds(50);  // doubles
  // All slices must be acknowledged this long after the prefill's end.
  Duration transfer_timeout = std::chrono::seconds(30);
  Duration load_interval_min = std::chrono::milliseconds(100);
  Duration load_interval_max = std::chrono::seconds(1);
};

// ---- Effects: what the shell must do, in order. ----

// Never blocks: if the stream's queue is full, the shell ends the session.
struct SendToConductor {
  SessionId session = 0;
  wire::SessionResponse message;
};
// No OnSessionClosed is needed for it.
struct EndSession {
  SessionId session = 0;
  Status reason;
};

using PeerRequest =
    std::variant<wire::ReserveRequest, wire::CommitRequest, wire::AbortRequest>;
using PeerResponse = std::variant<wire::ReserveResponse, wire::CommitResponse,
                                  wire::AbortResponse>;

// Answer with OnPeerReply, also when `deadline` passed.
struct CallPeer {
  PeerCallId call = 0;
  std::string address;
  PeerRequest request;
  TimePoint deadline{};
};
struct ReplyToPeer {
  IncomingCallId call = 0;
  StatusOr<PeerResponse> response;
};

// Let the peer write all layers of these pages (at least one). Answer with
// OnGranted.
struct GrantCapability {
  GrantId grant = 0;
  std::vector<engine::PageId> pages;
  // The request's own end; the core revokes earlier if the reservation is not
  // renewed.
  TimePoint expiry{};
};
// Accept no more writes. Answer with OnRevoked, and what has arrived by then,
// once it is proven that none can happen any more (DESIGN §3, step 3).
struct RevokeCapability {
  GrantId grant = 0;
};

// First SliceStreamer::StartStep(step_pages), then execute, calling
// SliceStreamer::OnLayer for each layer; answer with OnStepDone. `plan` stays
// valid until then.
struct RunStep {
  const engine::StepPlan* plan = nullptr;
  std::vector<StreamPages> step_pages;
};
// SliceStreamer::AddFinal.
struct AddFinalPages {
  StreamPages pages;
};
// SliceStreamer::Open.
struct OpenStream {
  std::shared_ptr<const StreamTarget> target;
};
// SliceStreamer::Close; cancel what is in flight. Answer with OnStreamClosed
// once local memory is no longer read for it.
struct CloseStream {
  StreamId stream = 0;
};

using WorkerEffect =
    std::variant<SendToConductor, EndSession, CallPeer, ReplyToPeer,
                 GrantCapability, RevokeCapability, RunStep, AddFinalPages,
                 OpenStream, CloseStream>;

struct WorkerCoreStats {
  uint32_t sessions = 0;
  uint32_t requests = 0;      // of all kinds, ending ones included
  uint32_t reservations = 0;  // granted or being granted, not committed
  uint32_t quarantined = 0;   // capabilities being revoked
  uint32_t streams = 0;       // outgoing, not closed
  uint64_t submitted_total = 0;
  uint64_t handed_over_total = 0;
  uint64_t received_total = 0;  // commits accepted
  uint64_t expired_reservations_total = 0;
  uint64_t peer_retries_total = 0;
  uint64_t stale_calls_total = 0;  // refused for an old attempt
  uint64_t digest_failures_total = 0;
  uint64_t session_gaps_total = 0;
  uint64_t role_switches_total = 0;
  uint64_t handed_back_total = 0;  // not done when there was no more time
};

// Confined to one thread. Calls take the time, append effects, and never
// block; the shell takes the effects after each call.
//
// Only work of the current role is taken: handovers as prefill, reservations
// and whole requests as decode.
//
// Invariants: an attempt ends once, in one of: finish reason sent, failure
// sent, handed over, cancelled, superseded; pages with writes posted against
// them return to the pool only after OnRevoked, pages being read only after
// OnStreamClosed; messages of one session carry sequence numbers from 1.
class WorkerCore {
 public:
  // `engine` must outlive the core and is used by nothing else.
  WorkerCore(WorkerCoreConfig config, engine::EngineCore& engine);
  ~WorkerCore();

  // ---- Conductors ----
  // Any message of a session, the hello first. A session that is not known
  // opens with it; a gap, or a hello that is missing or repeated, ends it.
  void OnSessionMessage(SessionId session, const wire::SessionRequest& message,
                        TimePoint now);
  // The stream ended: its requests are cancelled.
  void OnSessionClosed(SessionId session, TimePoint now);

  // ---- Other workers: calls from them ----
  void OnPeerCall(IncomingCallId call, const PeerRequest& request,
                  TimePoint now);
  // `capability` as it goes into the response, or why it could not be granted
  // (then it is not revoked either).
  void OnGranted(GrantId grant,
                 const StatusOr<wire::TransferCapability>& capability,
                 TimePoint now);
  // `received` as transfer::Messenger::ReceivedDigest told.
  void OnRevoked(GrantId grant, const transfer::Received& received,
                 TimePoint now);

  // ---- Other workers: our calls and streams to them ----
  void OnPeerReply(PeerCallId call, const StatusOr<PeerResponse>& response,
                   TimePoint now);
  void OnSlicesSent(const SlicesSent& sent, TimePoint now);
  void OnStreamClosed(StreamId stream, TimePoint now);

  // ---- Engine ----
  // An error of the runner ends every request of the step with KIND_INTERNAL;
  // `result` is then ignored.
  void OnStepDone(const Status& status, const engine::StepResult& result,
                  TimePoint now);

  // ---- Life ----
  // Begins a switch to another role: no new work is taken, what is here may end
  // until the drain timeout, and is then handed back (KIND_DRAINING); as soon
  // as nothing is left, the new role is served, with the same cache. The
  // current role ends a switch under way. Sessions are told of every change.
  // Errors: kInvalidArgument; kFailedPrecondition (older epoch, the same epoch
  // with another role, other incarnation, draining).
  StatusOr<wire::RoleState> SetRole(const wire::SetRoleRequest& request,
                                    TimePoint now);
  // Takes no new requests; those here run to their end, or are handed back
  // after `timeout`.
  void Drain(Duration timeout, TimePoint now);
  // Nothing runs, is reserved, quarantined or streamed any more.
  bool Idle() const;
  void Tick(TimePoint now);
  // When Tick must be called next; TimePoint::max() for never.
  TimePoint NextDeadline() const;

  // Moves out what the calls since the last one asked for.
  std::vector<WorkerEffect> TakeEffects();

  wire::DescribeResponse Describe() const;
  const wire::RoleState& role_state() const;
  WorkerCoreStats Stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::worker
