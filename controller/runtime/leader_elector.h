// One leader among equal controllers, by a Lease of the API server.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "controller/kube/client.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/random.h"
#include "dataplane/base/status.h"

namespace tidepool::runtime {

// A leader whose process or node dies is followed by another after at most
// lease_duration + poll_interval + one call: under 5 s as set here, whether it
// was killed, frozen or cut off. One that stops properly releases the Lease
// and is followed after one poll.
struct LeaderElectorOptions {
  kube::ObjectKey lease;
  // Unique per process start: see UniqueIdentity.
  std::string identity;
  // Others wait this long, on their own monotonic clock, after they last saw
  // the Lease change. Whole seconds.
  Duration lease_duration = std::chrono::seconds(4);
  // The leader leads this long after it sent the last renewal that succeeded.
  // Less than lease_duration by what clocks may drift apart meanwhile and by
  // what a write takes that was on its way.
  Duration renew_deadline = std::chrono::seconds(3);
  Duration renew_interval = std::chrono::seconds(1);
  Duration poll_interval = std::chrono::milliseconds(500);
};

// "<name>_<64 random bits>", `name` being the pod's.
std::string UniqueIdentity(std::string_view name);

// What the election needs of a Lease.
struct LeaseState {
  std::string resource_version;
  std::string holder;  // "" after a release
  Duration duration{};
  int64_t transitions = 0;
};

// Errors: kInvalidArgument naming the field.
StatusOr<LeaseState> ParseLease(const kube::Json& lease);

// The election without threads, clocks or sockets. Externally synchronized.
//
// A leader counts from when it sent a renewal, the others from when they saw
// its effect, both on monotonic clocks: it stops before anybody else starts.
//
// Terms: each acquisition writes a greater leaseTransitions, which is the term,
// and at least the minutes since 1970, so that terms also grow when the Lease
// was deleted (unless leaders changed more than once a minute on average):
// workers remember terms, and would refuse all that is asked of them in a lower
// one.
class LeaderElectorCore {
 public:
  enum class Verb { kGet, kCreate, kReplace };
  struct Call {
    Verb verb = Verb::kGet;
    bool acquires = false;
    bool releases = false;
    // What kCreate and kReplace write; the version is kReplace's precondition.
    std::string holder, resource_version;
    int64_t transitions = 0;
    TimePoint sent;
  };

  LeaderElectorCore(const LeaderElectorOptions& options, uint64_t seed);

  // The call to make now, or nullopt and nothing to do before next_wake. One
  // at a time: its end must be told before the next is asked for.
  std::optional<Call> Next(TimePoint now, double unix_seconds);
  void Ended(const Call& call, TimePoint now,
             const StatusOr<LeaseState>& result);
  TimePoint next_wake() const { return next_call_; }

  // Leads no more; Next releases the Lease if it is ours, and then is done.
  void Stop();
  bool stopped() const { return stopping_ && !held_; }

  // Leading before this time; TimePoint::min() when not.
  TimePoint leading_until() const { return leading_until_; }
  bool IsLeading(TimePoint now) const { return now < leading_until_; }
  // Of the Lease that is, or was last, ours; 0 before.
  uint64_t term() const { return static_cast<uint64_t>(term_); }
  // Whom the Lease named when it was last seen; "" if nobody.
  const std::string& holder() const { return seen_.holder; }

 private:
  Call Renew(TimePoint now) const;
  Call Acquire(TimePoint now, double unix_seconds) const;
  TimePoint ClaimableAt() const;
  void Schedule(TimePoint now);
  void Observe(TimePoint now, const StatusOr<LeaseState>& result);
  void Renewed(const Call& call, TimePoint now,
               const StatusOr<LeaseState>& result);
  void Acquired(const Call& call, TimePoint now,
                const StatusOr<LeaseState>& result);
  void Lose();

  const LeaderElectorOptions options_;
  Random random_;

  bool stopping_ = false;
  bool held_ = false;    // ours, for all we know
  bool known_ = false;   // seen_ and absent_ may be acted upon
  bool absent_ = false;  // there is no Lease
  LeaseState seen_;
  TimePoint seen_at_;  // when what we saw last changed
  TimePoint next_call_ = TimePoint::min();
  TimePoint leading_until_ = TimePoint::min();
  int64_t term_ = 0;
};

// The election on a thread of its own. Thread-safe.
class LeaderElector {
 public:
  // Called on the election's thread; must not block. `stopped` may come one
  // call's deadline late: what must not happen any more asks IsLeading.
  struct Listener {
    std::function<void(uint64_t term)> started;
    std::function<void()> stopped;
  };

  // `client` must outlive it and give up a call after at most
  // `renew_interval`, so that a renewal can be tried again in time.
  LeaderElector(const LeaderElectorOptions& options, kube::Client& client,
                const Clock& clock, uint64_t seed, Listener listener);
  // Stops.
  ~LeaderElector();

  void Start();
  // Releases the Lease, if held, within one call's deadline; joins.
  void Stop();

  // By the clock, not by what callbacks have said.
  bool IsLeading() const;
  // The term being led; nullopt when not leading.
  std::optional<uint64_t> Term() const;
  uint64_t terms_total() const { return terms_total_.load(); }

 private:
  void Run(std::stop_token stop);
  StatusOr<LeaseState> Perform(const LeaderElectorCore::Call& call);
  void Tell();

  const LeaderElectorOptions options_;
  kube::Client& client_;
  const Clock& clock_;
  const Listener listener_;
  LeaderElectorCore core_;        // confined to the thread
  bool ending_ = false;           // likewise
  std::optional<uint64_t> told_;  // the term that `started` was told
  double acquired_unix_ = 0;
  std::atomic<Duration::rep> leading_until_;
  std::atomic<uint64_t> term_ = 0;
  std::atomic<uint64_t> terms_total_ = 0;
  std::jthread thread_;
};

}  // namespace tidepool::runtime
