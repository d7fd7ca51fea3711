#include "controller/runtime/leader_elector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "controller/kube/resource_types.h"
#include "dataplane/base/notification.h"
#include "tests/fakes/api_server.h"

namespace tidepool::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Call = LeaderElectorCore::Call;
using Verb = LeaderElectorCore::Verb;

constexpr double kUnix = 1'800'000'000;

// The Lease as a server keeps it.
class LeaseServer {
 public:
  StatusOr<LeaseState> Do(const Call& call) {
    if (call.verb == Verb::kGet) {
      if (!lease_) return NotFound("no lease");
      return *lease_;
    }
    if (call.verb == Verb::kCreate) {
      if (lease_) return MakeError(Code::kAlreadyExists, "exists");
    } else {
      if (!lease_) return NotFound("no lease");
      if (lease_->resource_version != call.resource_version)
        return MakeError(Code::kAborted, "conflict");
    }
    EXPECT_TRUE(call.transitions > transitions_max_ || !call.acquires);
    transitions_max_ = std::max(transitions_max_, call.transitions);
    lease_ = LeaseState{.resource_version = std::to_string(++version_),
                        .holder = call.holder,
                        .duration = call.releases ? seconds(1) : seconds(4),
                        .transitions = call.transitions};
    return *lease_;
  }
  void Delete() { lease_.reset(); }
  // Somebody writes what is none of the election's business.
  void Touch() {
    if (lease_) lease_->resource_version = std::to_string(++version_);
  }
  const std::optional<LeaseState>& lease() const { return lease_; }

 private:
  std::optional<LeaseState> lease_;
  uint64_t version_ = 0;
  int64_t transitions_max_ = 0;
};

class LeaderElectorTest : public ::testing::Test {
 protected:
  LeaderElectorCore Make(const std::string& identity) {
    return {{.lease = {"space", "lease"}, .identity = identity}, 1};
  }
  // Makes all calls that are due, without taking time.
  void Run(LeaderElectorCore& core) {
    while (const auto call = core.Next(now_, kUnix))
      core.Ended(*call, now_, server_.Do(*call));
  }
  // In steps as small as the election's.
  void Pass(std::vector<LeaderElectorCore*> cores, Duration time) {
    const TimePoint end = now_ + time;
    while (now_ < end) {
      now_ += milliseconds(50);
      for (LeaderElectorCore* core : cores) Run(*core);
    }
  }
  bool Leads(const LeaderElectorCore& core) const {
    return core.IsLeading(now_);
  }

  TimePoint now_{seconds(1000)};
  LeaseServer server_;
};

TEST_F(LeaderElectorTest, TheFirstLeadsAtOnceAndGoesOn) {
  LeaderElectorCore a = Make("a"), b = Make("b");
  Run(a);
  Run(b);
  EXPECT_TRUE(Leads(a));
  EXPECT_EQ(b.holder(), "a");
  const uint64_t term = a.term();
  EXPECT_EQ(term, static_cast<uint64_t>(kUnix / 60));
  Pass({&a, &b}, seconds(60));
  EXPECT_TRUE(Leads(a));
  EXPECT_FALSE(Leads(b));
  EXPECT_EQ(a.term(), term);
}

TEST_F(LeaderElectorTest, ADeadLeaderIsFollowedWithinFiveSeconds) {
  LeaderElectorCore a = Make("a"), b = Make("b");
  Run(a);
  Pass({&a, &b}, milliseconds(3300));
  const TimePoint died = now_;
  while (!Leads(b)) Pass({&b}, milliseconds(50));
  EXPECT_FALSE(Leads(a));
  EXPECT_LE(now_ - died, seconds(5));
  EXPECT_GT(b.term(), a.term());
}

TEST_F(LeaderElectorTest, AReleasedLeaseIsTakenByTheNextPoll) {
  LeaderElectorCore a = Make("a"), b = Make("b");
  Run(a);
  Pass({&a, &b}, seconds(2));
  a.Stop();
  EXPECT_FALSE(Leads(a));
  EXPECT_FALSE(a.stopped());
  Run(a);
  EXPECT_TRUE(a.stopped());
  EXPECT_EQ(server_.lease()->holder, "");
  Pass({&b}, milliseconds(500));
  EXPECT_TRUE(Leads(b));
}

TEST_F(LeaderElectorTest, ALeaseAcquiredWhileStoppingIsOnlyReleased) {
  LeaderElectorCore a = Make("a");
  const auto get = a.Next(now_, kUnix);
  a.Ended(*get, now_, server_.Do(*get));
  const auto create = a.Next(now_, kUnix);
  const auto made = server_.Do(*create);
  a.Stop();
  a.Ended(*create, now_, made);
  EXPECT_FALSE(Leads(a));
  EXPECT_FALSE(a.stopped());
  Run(a);
  EXPECT_TRUE(a.stopped());
  EXPECT_EQ(server_.lease()->holder, "");
}

TEST_F(LeaderElectorTest, ALeaderWithoutServerStopsBeforeOthersStart) {
  LeaderElectorCore a = Make("a");
  Run(a);
  const TimePoint renewed = now_;
  while (Leads(a)) {
    now_ += milliseconds(50);
    while (const auto call = a.Next(now_, kUnix))
      a.Ended(*call, now_, Unavailable("away"));
  }
  EXPECT_LE(now_ - renewed, seconds(3));
  // A new term when the server is back, though nobody else had one.
  const uint64_t term = a.term();
  Pass({&a}, seconds(1));
  EXPECT_TRUE(Leads(a));
  EXPECT_GT(a.term(), term);
}

TEST_F(LeaderElectorTest, ARenewalCountsFromWhenItWasSent) {
  LeaderElectorCore a = Make("a");
  Run(a);
  now_ += seconds(1);
  const auto call = a.Next(now_, kUnix);
  ASSERT_TRUE(call);
  const TimePoint sent = now_;
  const auto result = server_.Do(*call);
  now_ += milliseconds(900);
  a.Ended(*call, now_, result);
  EXPECT_EQ(a.leading_until(), sent + seconds(3));
}

TEST_F(LeaderElectorTest, ARenewalThatComesBackTooLateIsNone) {
  LeaderElectorCore a = Make("a");
  Run(a);
  now_ += seconds(1);
  const auto call = a.Next(now_, kUnix);
  const auto result = server_.Do(*call);
  now_ += milliseconds(2500);
  const uint64_t term = a.term();
  EXPECT_FALSE(Leads(a));
  a.Ended(*call, now_, result);
  EXPECT_FALSE(Leads(a));
  Run(a);
  EXPECT_TRUE(Leads(a));
  EXPECT_GT(a.term(), term);
}

TEST_F(LeaderElectorTest, AnswersThatGotLostAreFoundOutByReading) {
  LeaderElectorCore a = Make("a");
  const auto get = a.Next(now_, kUnix);
  a.Ended(*get, now_, server_.Do(*get));
  const auto create = a.Next(now_, kUnix);
  ASSERT_EQ(create->verb, Verb::kCreate);
  (void)server_.Do(*create);
  a.Ended(*create, now_, DeadlineExceeded("lost"));
  EXPECT_FALSE(Leads(a));
  Pass({&a}, seconds(1));
  EXPECT_TRUE(Leads(a));
  // The same for a renewal.
  now_ = std::max(now_, a.next_wake());
  const auto renew = a.Next(now_, kUnix);
  ASSERT_EQ(renew->verb, Verb::kReplace);
  (void)server_.Do(*renew);
  a.Ended(*renew, now_, DeadlineExceeded("lost"));
  const uint64_t term = a.term();
  Pass({&a}, seconds(5));
  EXPECT_TRUE(Leads(a));
  EXPECT_EQ(a.term(), term);
}

TEST_F(LeaderElectorTest, OthersWritesToTheLeaseDoNotEndATerm) {
  LeaderElectorCore a = Make("a");
  Run(a);
  const uint64_t term = a.term();
  for (int i = 0; i < 10; ++i) {
    server_.Touch();
    Pass({&a}, seconds(1));
    EXPECT_TRUE(Leads(a));
  }
  EXPECT_EQ(a.term(), term);
}

TEST_F(LeaderElectorTest, TermsGrowAlsoWhenTheLeaseIsDeleted) {
  LeaderElectorCore a = Make("a"), b = Make("b");
  Run(a);
  Pass({&a, &b}, seconds(2));
  const uint64_t term = a.term();
  server_.Delete();
  Pass({&a, &b}, seconds(2));
  EXPECT_TRUE(Leads(a) != Leads(b));
  EXPECT_GT(std::max(a.term(), b.term()), term);
  // Processes that know nothing of the former terms come later than they.
  server_.Delete();
  LeaderElectorCore fresh = Make("c");
  const auto get = fresh.Next(now_, kUnix + 3600);
  fresh.Ended(*get, now_, server_.Do(*get));
  const auto create = fresh.Next(now_, kUnix + 3600);
  EXPECT_GT(create->transitions, static_cast<int64_t>(term) + 50);
}

TEST_F(LeaderElectorTest, ADurationOfAnotherReleaseIsWaitedFor) {
  LeaderElectorCore b = Make("b");
  (void)server_.Do({.verb = Verb::kCreate,
                    .acquires = true,
                    .holder = "x",
                    .transitions = 5});
  Pass({&b}, milliseconds(3900));
  EXPECT_FALSE(Leads(b));
  Pass({&b}, milliseconds(300));
  EXPECT_TRUE(Leads(b));
}

TEST(LeaseTest, ParsesWhatTheApiServerSays) {
  const auto state = ParseLease({{"metadata", {{"resourceVersion", "7"}}},
                                 {"spec",
                                  {{"holderIdentity", "me"},
                                   {"leaseDurationSeconds", 4},
                                   {"leaseTransitions", 9}}}});
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->holder, "me");
  EXPECT_EQ(state->duration, seconds(4));
  EXPECT_EQ(state->transitions, 9);
  EXPECT_TRUE(ParseLease({{"metadata", {{"resourceVersion", "7"}}}}).ok());
  EXPECT_FALSE(ParseLease({{"metadata", {{"name", "x"}}}}).ok());
  EXPECT_FALSE(ParseLease({{"metadata", {{"resourceVersion", "7"}}},
                           {"spec", {{"leaseTransitions", -1}}}})
                   .ok());
}

// Controllers with clocks of their own before one server: calls are late, lost
// on the way there or back, processes freeze, die and begin anew, the Lease is
// touched by others. Time in milliseconds.
class ElectionSim {
 public:
  explicit ElectionSim(uint64_t seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) Restart(i);
  }

  void Run() {
    for (now_ = 0; now_ < 60'000; now_ += 10) {
      const bool calm = now_ > 45'000;
      if (!calm) Disturb();
      for (Process& process : processes_) Step(process, calm);
      CheckLeaders();
    }
    EXPECT_EQ(leaders_, 1) << "nobody leads after 15 s of calm";
  }

 private:
  struct Process {
    std::unique_ptr<LeaderElectorCore> core;
    double rate = 1;     // of its clock
    int64_t offset = 0;  // of its clock
    int64_t frozen_until = 0;
    std::optional<Call> call;  // on its way
    int64_t applied_at = 0, answered_at = 0;
    StatusOr<LeaseState> answer = Internal("none");
    bool applied = false;
  };

  TimePoint TimeOf(const Process& process) const {
    return TimePoint(std::chrono::microseconds(
        static_cast<int64_t>((static_cast<double>(now_) * process.rate) * 1000 +
                             static_cast<double>(process.offset) * 1000)));
  }

  void Restart(int i) {
    Process& process = processes_[i];
    process = {};
    process.core = std::make_unique<LeaderElectorCore>(
        LeaderElectorOptions{.lease = {"s", "l"},
                             .identity = fmt::format("p{}", ++starts_)},
        random_.Next());
    process.rate = 0.98 + 0.04 * random_.Unit();
    process.offset = 1'000'000 + static_cast<int64_t>(random_.Below(1'000'000));
  }

  void Disturb() {
    const uint64_t draw = random_.Below(4000);
    Process& process = processes_[random_.Below(3)];
    if (draw == 0) Restart(static_cast<int>(random_.Below(3)));
    if (draw == 1)
      process.frozen_until = now_ + static_cast<int64_t>(random_.Below(12'000));
    if (draw == 2) process.core->Stop();
    if (draw == 3) server_.Touch();
    if (draw == 4)
      away_until_ = now_ + static_cast<int64_t>(random_.Below(8'000));
  }

  void Send(Process& process, const Call& call, bool calm) {
    process.call = call;
    process.applied = false;
    process.answer = DeadlineExceeded("lost");
    const auto delay = [&]() -> int64_t {
      if (calm) return 5;
      if (random_.Chance(0.03)) return 100'000;  // never
      if (random_.Chance(0.1)) return static_cast<int64_t>(random_.Below(3000));
      return static_cast<int64_t>(random_.Below(40));
    };
    process.applied_at = now_ + delay();
    const int64_t back = process.applied_at + delay();
    process.answered_at = std::min<int64_t>(back, now_ + 1000);
  }

  void Step(Process& process, bool calm) {
    if (process.call && !process.applied && now_ >= process.applied_at &&
        now_ >= away_until_) {
      process.applied = true;
      const StatusOr<LeaseState> answer = server_.Do(*process.call);
      if (now_ <= process.answered_at) process.answer = answer;
    }
    if (now_ < process.frozen_until) return;
    if (process.call && now_ >= process.answered_at) {
      const Call call = *process.call;
      // What was not applied by now may still be: it is only forgotten here.
      if (!process.applied) pending_.push_back({call, process.applied_at});
      process.call.reset();
      process.core->Ended(call, TimeOf(process), process.answer);
    }
    ApplyLate();
    if (process.core->stopped()) {
      Restart(static_cast<int>(&process - processes_.data()));
      return;
    }
    if (!process.call)
      if (const auto call = process.core->Next(
              TimeOf(process), kUnix + static_cast<double>(now_) / 1000))
        Send(process, *call, calm);
  }

  // Writes whose sender has given up arrive all the same.
  void ApplyLate() {
    std::erase_if(pending_, [&](const auto& late) {
      if (now_ < late.second || now_ < away_until_) return false;
      (void)server_.Do(late.first);
      return true;
    });
  }

  void CheckLeaders() {
    leaders_ = 0;
    for (const Process& process : processes_) {
      if (!process.core->IsLeading(TimeOf(process))) continue;
      ++leaders_;
      const uint64_t term = process.core->term();
      EXPECT_GE(term, term_);
      // No two processes ever lead in one term.
      const auto [it, added] = led_by_.try_emplace(term, process.core.get());
      EXPECT_TRUE(added || it->second == process.core.get());
      term_ = std::max(term_, term);
    }
    EXPECT_LE(leaders_, 1);
  }

  Random random_;
  LeaseServer server_;
  std::array<Process, 3> processes_;
  std::vector<std::pair<Call, int64_t>> pending_;
  std::map<uint64_t, const LeaderElectorCore*> led_by_;
  int64_t now_ = 0, away_until_ = 0;
  uint64_t term_ = 0;
  int starts_ = 0, leaders_ = 0;
};

TEST(LeaderElectorSimTest, NeverTwoLeadersAndAlwaysOneAgain) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    ElectionSim(seed).Run();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(LeaderElectorThreadsTest, AStoppedLeaderIsFollowedByTheOther) {
  fakes::ApiServer server;
  Notification a_leads, a_stopped, b_leads;
  const auto options = [](std::string_view name) {
    return LeaderElectorOptions{.lease = {"space", "lease"},
                                .identity = UniqueIdentity(name)};
  };
  LeaderElector a(options("a"), server, Clock::Monotonic(), 1,
                  {.started = [&](uint64_t) { a_leads.Notify(); },
                   .stopped = [&] { a_stopped.Notify(); }});
  LeaderElector b(
      options("b"), server, Clock::Monotonic(), 2,
      {.started = [&](uint64_t) { b_leads.Notify(); }, .stopped = [] {}});
  a.Start();
  ASSERT_TRUE(a_leads.WaitFor(seconds(60)));
  b.Start();
  ASSERT_TRUE(a.IsLeading());
  const uint64_t term = *a.Term();
  EXPECT_FALSE(b.Term());
  a.Stop();
  EXPECT_TRUE(a_stopped.happened());
  EXPECT_FALSE(a.IsLeading());
  ASSERT_TRUE(b_leads.WaitFor(seconds(60)));
  EXPECT_GT(*b.Term(), term);
  b.Stop();
  const auto lease = *server.Get(kube::kLease, {"space", "lease"});
  EXPECT_FALSE(lease["spec"].contains("holderIdentity"));
}

}  // namespace
}  // namespace tidepool::runtime
