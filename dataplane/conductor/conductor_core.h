// The conductor's protocol as a deterministic state machine (DESIGN §1, §3):
// which worker runs which request, and what happens when one of them dies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/scheduling/placement.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::conductor {

namespace wire = ::tidepool::worker::v1;

using scheduling::WorkerId;

// One stream to one worker; chosen by the core, never reused.
using ConnectionId = uint64_t;

struct ConductorCoreConfig {
  std::string conductor_id;  // stable name of this replica
  uint64_t incarnation = 0;  // random for each process start
  uint64_t seed = 0;         // for the jitter of backoffs

  uint32_t max_workers = 1024;           // AddWorker fails beyond
  uint32_t max_requests = 8192;          // in flight and waiting; then 429
  uint32_t max_waiting_requests = 2048;  // without a worker; then 429
  // Requests that one prefill worker is given before others wait here, where
  // they can still go elsewhere.
  uint32_t max_requests_per_prefill_worker = 64;
  // Attempts that failed. To be refused for want of room, or handed back by a
  // worker that drains, is no failure.
  uint32_t max_attempts = 5;
  uint32_t max_records = 1024;  // ended requests kept for Explain

  Duration connect_timeout = std::chrono::seconds(10);  // until WorkerHello
  Duration reconnect_backoff_min = std::chrono::milliseconds(50);
  Duration reconnect_backoff_max = std::chrono::seconds(5);
  // The same, while a worker says that its model is loading.
  Duration loading_backoff_max = std::chrono::milliseconds(500);
  // Workers speak at least every second; one that is silent for this long is
  // taken for dead.
  Duration silence_timeout = std::chrono::seconds(5);
  // How long a request waits while workers are ready but full, and while none
  // is ready.
  Duration max_queue_wait = std::chrono::minutes(5);
  Duration max_unready_wait = std::chrono::seconds(30);
  // An attempt whose workers live but that shows no progress for this long is
  // given up and retried.
  Duration progress_timeout = std::chrono::seconds(120);
  Duration overload_backoff_min = std::chrono::milliseconds(20);
  Duration overload_backoff_max = std::chrono::seconds(1);
};

// One choice of one API call.
struct ClientRequest {
  std::string id;  // unique for the life of this process
  std::vector<int32_t> prompt;
  wire::SamplingParams sampling;  // the seed is set, so that retries agree
  std::string tenant, adapter, tenant_salt;
  Duration timeout = std::chrono::minutes(10);
};

// How a request ended. A closed set: used as a metrics label and as the reason
// in responses.
enum class EndReason {
  kFinished,       // the last output carried the finish reason
  kCancelled,      // by Cancel
  kInvalid,        // a worker says it can run nowhere           (400)
  kNoRoom,         // waited max_queue_wait, workers were full   (429);
                   // what was handed back waits on until its timeout
  kNoReadyWorker,  // waited max_unready_wait, none was ready    (503)
  kAttemptsSpent,  // max_attempts failed                        (503)
  kExpired,        // its own timeout passed                     (504)
  kShutdown,       // the conductor is going away                (503)
};
std::string_view NameOf(EndReason reason);

// One try to run a request.
struct AttemptRecord {
  uint32_t attempt = 0;        // from 1
  std::string prefill_worker;  // name; "" if the decode worker did both
  std::string decode_worker;
  scheduling::PlacementReason placement_reason{};
  std::string explanation;
  uint32_t context_tokens = 0;  // prompt and tokens of earlier attempts
  TimePoint started{};          // sent to a worker
  std::optional<TimePoint> handed_over;   // the decode worker took the commit
  std::optional<TimePoint> first_output;  // of this attempt
  std::optional<TimePoint> failed;
  std::string failure;  // "decode-0: session ended: ..." if it failed
  uint64_t transferred_bytes = 0;
  std::string transport;  // "" until handed over
};

// Where a request ran and when: for logs, metrics and response headers.
struct RequestRecord {
  std::string id;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // prompt tokens not computed in attempt 1
  uint32_t output_tokens = 0;  // emitted to the client
  uint32_t overloads = 0;      // tries refused for want of room
  uint32_t hand_backs = 0;     // by workers that drained or changed their role
  TimePoint arrived{};
  std::optional<TimePoint> first_token, last_token, ended;
  // Of tries in a row refused for want of room only the last is kept, and of
  // very many the first and the last ones.
  std::vector<AttemptRecord> attempts;
  std::optional<EndReason> end_reason;

  // "attempt 1: prefill-0 → decode-1 (least_loaded: ...) failed after 0.31 s:
  // ...; attempt 2: ..."
  std::string Explain() const;
};

// ---- Effects: what the shell must do, in order. ----

// Open a stream to the worker; answer with OnConnected or OnDisconnected.
struct ConnectWorker {
  ConnectionId connection = 0;
  WorkerId worker = 0;
  std::string address;
  TimePoint deadline{};
};
// End the stream; no OnDisconnected is needed for it.
struct DisconnectWorker {
  ConnectionId connection = 0;
  std::string reason;
};
// Never blocks: if the stream's queue is full, the shell ends the stream.
struct SendToWorker {
  ConnectionId connection = 0;
  wire::SessionRequest message;
};
// New tokens for the client: in order, without gaps or repeats over all
// attempts. With a finish reason it is the last, and EndRequest follows.
struct EmitOutput {
  std::string request_id;
  wire::RequestOutput output;
};
// Exactly once for every request that Submit accepted; nothing follows it.
struct EndRequest {
  std::string request_id;
  EndReason reason{};
  std::string message;  // for the client, if it failed
  RequestRecord record;
};
using ConductorEffect = std::variant<ConnectWorker, DisconnectWorker,
                                     SendToWorker, EmitOutput, EndRequest>;

// What is known of a worker, for /ready, /metrics and the gateway's checks.
struct WorkerStatus {
  WorkerId id = 0;
  std::string name, address;
  bool connected = false;              // WorkerHello received
  bool ready = false;                  // and takes requests
  bool loading = false;                // it answers, but has no model yet
  wire::DescribeResponse description;  // the last one
  wire::WorkerLoad load;               // of this session
  uint32_t own_requests = 0;
  uint64_t failures = 0;  // sessions lost, or not opened for another reason
                          // than that it is loading
  std::string last_failure;
};

struct ConductorStats {
  uint64_t submitted = 0, retries = 0, overloads = 0, hand_backs = 0;
  uint64_t stale_outputs = 0;  // of attempts that are over
  uint64_t gaps = 0;           // sessions ended for a missing message
  uint64_t ended[8] = {};      // by EndReason
  uint32_t requests = 0, waiting = 0;
  uint32_t waiting_for_decode = 0;  // of those waiting: for room to decode
  // Of the others, which wait for room to prefill; emitted ones too.
  uint64_t waiting_prompt_tokens = 0;
};

// Confined to one thread. Calls take the time, append effects, and never
// block; the shell takes the effects after each call.
//
// Invariants: one EndRequest per accepted request; outputs of a request are
// consecutive from index 0; messages of one connection carry sequence numbers
// from 1 without gaps.
class ConductorCore {
 public:
  // `placement` must outlive the core.
  ConductorCore(ConductorCoreConfig config,
                const scheduling::PlacementPolicy& placement);
  ~ConductorCore();

  // ---- Fleet ----
  // `name` is for people; "" takes the one that the worker says, and its
  // address until then. Errors: kAlreadyExists (address), kResourceExhausted.
  StatusOr<WorkerId> AddWorker(std::string name, std::string address,
                               TimePoint now);
  // Its requests are retried elsewhere. Unknown ids are ignored.
  void RemoveWorker(WorkerId worker, TimePoint now);

  // The stream of ConnectWorker can be written to.
  void OnConnected(ConnectionId connection, TimePoint now);
  // The stream could not be opened, or ended.
  void OnDisconnected(ConnectionId connection, const Status& reason,
                      TimePoint now);
  // The worker refuses the session for now, and says what it is. The end of
  // the connection follows.
  void OnDescribed(ConnectionId connection,
                   const wire::DescribeResponse& description);
  void OnMessage(ConnectionId connection, const wire::SessionResponse& message,
                 TimePoint now);

  // ---- Clients ----
  // Errors, before anything runs: kInvalidArgument (empty prompt, no timeout,
  // repeated id), kResourceExhausted (max_requests, max_waiting_requests: 429),
  // kUnavailable (after Shutdown: 503). After an error no EndRequest follows.
  Status Submit(ClientRequest request, TimePoint now);
  // Ends the request with kCancelled unless it has ended; also used when the
  // gateway has seen a stop string.
  void Cancel(std::string_view request_id, std::string_view reason,
              TimePoint now);

  // Ends every request with kShutdown and disconnects all workers.
  void Shutdown(TimePoint now);

  // ---- Time ----
  void Tick(TimePoint now);
  // When Tick must be called next; TimePoint::max() for never.
  TimePoint NextDeadline() const;

  // Moves out what the calls since the last one asked for.
  std::vector<ConductorEffect> TakeEffects();

  // ---- Views ----
  std::vector<WorkerStatus> Workers() const;
  // Some decode worker is ready.
  bool Ready() const;
  ConductorStats Stats() const;
  // In flight or among the last max_records that ended; null if neither. Valid
  // until the next call.
  const RequestRecord* Find(std::string_view request_id) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::conductor
