#include "dataplane/cli/elastic_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "dataplane/fleet/role.h"

namespace tidepool::cli {
namespace {

using namespace std::chrono_literals;
using fleet::RoleCall;
using scheduling::WorkerRole;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace wire = worker::v1;

constexpr uint64_t kTerm = 1700;

// Two prefill and two decode workers that take every role they are given, as a
// conductor reports them every second.
class ElasticCoreTest : public ::testing::Test {
 protected:
  ElasticCoreTest() {
    for (const ElasticWorker& worker : Workers()) {
      fleet::WorkerReport& told = workers_[worker.name];
      told.set_address(worker.address);
      told.set_connected(true);
      told.mutable_description()->set_ready(true);
      told.mutable_description()->set_incarnation(1);
      told.mutable_description()->set_role(fleet::ToWire(worker.role));
      told.mutable_description()->set_max_num_seqs(10);
      told.mutable_load()->set_prefill_tokens_per_second(1000);
    }
  }

  static std::vector<ElasticWorker> Workers() {
    return {{"prefill-0", "127.0.0.1:1", WorkerRole::kPrefill},
            {"prefill-1", "127.0.0.1:2", WorkerRole::kPrefill},
            {"decode-0", "127.0.0.1:3", WorkerRole::kDecode},
            {"decode-1", "127.0.0.1:4", WorkerRole::kDecode}};
  }

  enum class Load { kNone, kPrefill, kDecode };

  // The load is on whoever has its role.
  std::vector<fleet::ConductorReport> Reports() const {
    fleet::WatchFleetResponse report;
    for (const auto& [name, worker] : workers_) {
      fleet::WorkerReport& told = *report.add_workers() = worker;
      const bool prefills = told.description().role() == wire::ROLE_PREFILL;
      if (load_ == Load::kPrefill && prefills)
        told.mutable_load()->set_queued_prefill_tokens(5000);
      if (load_ == Load::kDecode && !prefills)
        told.mutable_load()->set_running_requests(10);
    }
    return {
        {.address = "127.0.0.1:8002",
         .report = std::make_shared<const fleet::WatchFleetResponse>(report),
         .at = now_}};
  }

  // One second; calls are kept in `calls_`, lines in `lines_`.
  void Step(const std::vector<fleet::ConductorReport>& reports) {
    ElasticCore::Turn turn = core_.Decide(reports, now_);
    for (RoleCall& call : turn.calls) calls_.push_back(std::move(call));
    for (std::string& line : turn.lines) lines_.push_back(std::move(line));
    now_ += 1s;
  }
  void Step() { Step(Reports()); }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) Step();
  }

  // Workers do at once as they are told.
  void TakeCalls() {
    for (const RoleCall& call : std::exchange(calls_, {})) {
      wire::DescribeResponse& description =
          *workers_.at(call.id).mutable_description();
      ASSERT_EQ(call.request.incarnation(), description.incarnation());
      description.set_role(call.request.role());
      *description.mutable_role_state()->mutable_epoch() = call.request.epoch();
      EXPECT_EQ(core_.OnAnswer({call.id, description.role_state()}, now_), "");
    }
  }
  // Until the fleet moves no more.
  void Settle(Load load) {
    load_ = load;
    for (int i = 0; i < 30; ++i) {
      Step();
      TakeCalls();
    }
  }
  std::string Prefilling() const {
    std::string names;
    for (const auto& [name, told] : workers_)
      if (told.description().role() == wire::ROLE_PREFILL) names += name + " ";
    return names;
  }

  TimePoint now_{1000s};
  Load load_ = Load::kNone;
  std::map<std::string, fleet::WorkerReport> workers_;
  ElasticCore core_{
      {.stabilization = 3s, .drain_timeout = 2s}, Workers(), kTerm, now_};
  std::vector<RoleCall> calls_;
  std::vector<std::string> lines_;
};

TEST_F(ElasticCoreTest, AnIdleFleetIsLeftAlone) {
  Steps(60);
  EXPECT_THAT(calls_, IsEmpty());
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ElasticCoreTest, LendsToTheRoleUnderPressureOnceItHasLasted) {
  load_ = Load::kPrefill;
  Steps(3);
  EXPECT_THAT(calls_, IsEmpty());
  Steps(1);
  ASSERT_EQ(calls_.size(), 1u);
  EXPECT_EQ(calls_[0].id, "decode-0");
  EXPECT_EQ(calls_[0].address, "127.0.0.1:3");
  EXPECT_EQ(calls_[0].request.role(), wire::ROLE_PREFILL);
  EXPECT_EQ(calls_[0].request.epoch().term(), kTerm);
  EXPECT_EQ(calls_[0].request.drain_timeout_ms(), 2000u);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("PrefillPressure: decode-0")));
}

TEST_F(ElasticCoreTest, FollowsTheLoadAndComesBackWhenItIsQuiet) {
  Settle(Load::kPrefill);
  EXPECT_EQ(Prefilling(), "decode-0 prefill-0 prefill-1 ");
  Settle(Load::kDecode);
  EXPECT_EQ(Prefilling(), "prefill-1 ");  // the lent one went home first
  Settle(Load::kNone);
  EXPECT_EQ(Prefilling(), "prefill-0 prefill-1 ");
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("PrefillPressure: decode-0"),
                                  HasSubstr("DecodePressure: decode-0"),
                                  HasSubstr("DecodePressure: prefill-0"),
                                  HasSubstr("ReturnLent: prefill-0")));
}

TEST_F(ElasticCoreTest, AWorkerThatRestartsIsAskedForItsPlannedRole) {
  Settle(Load::kPrefill);
  ASSERT_EQ(Prefilling(), "decode-0 prefill-0 prefill-1 ");
  wire::DescribeResponse& description =
      *workers_.at("decode-0").mutable_description();
  description.clear_role_state();
  description.set_role(wire::ROLE_DECODE);  // its flag's
  description.set_incarnation(2);
  lines_.clear();
  Step();
  ASSERT_EQ(calls_.size(), 1u);
  EXPECT_EQ(calls_[0].id, "decode-0");
  EXPECT_EQ(calls_[0].request.role(), wire::ROLE_PREFILL);
  EXPECT_EQ(calls_[0].request.incarnation(), 2u);
  EXPECT_THAT(lines_, IsEmpty());  // no move: the plan is what it was
}

TEST_F(ElasticCoreTest, ARefusalIsToldAndTriedAgainLater) {
  load_ = Load::kPrefill;
  Steps(4);
  ASSERT_EQ(calls_.size(), 1u);
  EXPECT_EQ(core_.OnAnswer({"decode-0", Unavailable("no route")}, now_),
            "decode-0 did not take its role: no route");
  calls_.clear();
  Steps(2);
  ASSERT_EQ(calls_.size(), 1u);
  EXPECT_EQ(calls_[0].id, "decode-0");
  EXPECT_EQ(calls_[0].request.epoch().sequence(), 2u);
}

TEST_F(ElasticCoreTest, WithoutStatisticsNothingMovesAndThatIsTold) {
  std::vector<fleet::ConductorReport> old = Reports();
  old[0].status = Unavailable("connection refused");
  load_ = Load::kPrefill;
  for (int i = 0; i < 30; ++i) Step(old);
  EXPECT_THAT(calls_, IsEmpty());
  EXPECT_THAT(lines_, ElementsAre("no statistics from the conductor: roles "
                                  "stay as they are: connection refused"));
  load_ = Load::kNone;
  Step();
  EXPECT_EQ(lines_.back(), "the conductor reports again");
}

TEST_F(ElasticCoreTest, NeverTakesTheLastOfARole) {
  workers_.at("decode-1").set_connected(false);
  load_ = Load::kPrefill;
  Steps(60);
  EXPECT_THAT(calls_, IsEmpty());
}

}  // namespace
}  // namespace tidepool::cli
