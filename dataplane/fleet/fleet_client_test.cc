#include "dataplane/fleet/fleet_client.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "dataplane/rpc/certificate_test_util.h"
#include "tidepool/conductor/v1/fleet.grpc.pb.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::fleet {
namespace {

using namespace std::chrono_literals;

namespace wire = worker::v1;

// Reports every 10 ms, until told to fall silent, or until the watch ends.
class FakeConductor : public conductor::v1::FleetService::Service {
 public:
  grpc::Status WatchFleet(
      grpc::ServerContext* context, const conductor::v1::WatchFleetRequest*,
      grpc::ServerWriter<WatchFleetResponse>* writer) override {
    const int stream = ++streams;
    uint64_t sequence = 0;
    while (!context->IsCancelled() && !ending) {
      WatchFleetResponse report;
      report.set_waiting_requests(static_cast<uint32_t>(stream));
      report.set_sequence(++sequence);
      if (silent_stream != stream && !writer->Write(report)) break;
      std::this_thread::sleep_for(10ms);
    }
    ++ended;
    return grpc::Status::OK;
  }

  std::atomic<int> streams = 0, ended = 0;
  std::atomic<int> silent_stream = 0;
  std::atomic<bool> ending = false;
};

class FakeWorker : public wire::WorkerService::Service {
 public:
  grpc::Status SetRole(grpc::ServerContext* context,
                       const wire::SetRoleRequest* request,
                       wire::SetRoleResponse* response) override {
    while (hanging && !context->IsCancelled()) std::this_thread::sleep_for(1ms);
    if (request->epoch().sequence() == 1)
      return {grpc::StatusCode::FAILED_PRECONDITION, "epoch 7.1 is older"};
    response->mutable_state()->set_target(request->role());
    return grpc::Status::OK;
  }

  std::atomic<bool> hanging = false;
};

class FleetClientTest : public ::testing::Test {
 protected:
  void SetUp() override { Serve(0); }
  void TearDown() override {
    client_.reset();
    StopServing();
  }

  void Serve(int port) {
    conductor_.ending = false;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(
        "127.0.0.1:" + std::to_string(port),
        security_.ServerCredentials({rpc::Component::kController}), &port_);
    builder.RegisterService(&conductor_);
    builder.RegisterService(&worker_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = "127.0.0.1:" + std::to_string(port_);
  }
  void StopServing() {
    conductor_.ending = true;
    if (server_) server_->Shutdown();
    server_.reset();
  }
  void Dial(FleetClient::Options options) {
    client_ = FleetClient::Create(options, Clock::Monotonic());
  }
  // Where no time passes that matters, however busy the machine is.
  static FleetClient::Options Patient(FleetClient::Options options = {}) {
    options.silence_max = options.call_timeout = 1h;
    return options;
  }

  // Tends the watch until `holds`; false after a minute.
  bool Await(const std::function<bool()>& holds) {
    const TimePoint end = Clock::Monotonic().Now() + 1min;
    while (!holds()) {
      if (Clock::Monotonic().Now() > end) return false;
      client_->Watch(watched_.empty() ? std::vector{address_} : watched_);
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }
  uint32_t HeardFromStream() {
    const std::vector<ConductorReport> reports = client_->Reports();
    return reports.empty() || reports[0].report == nullptr
               ? 0
               : reports[0].report->waiting_requests();
  }
  std::optional<FleetClient::RoleAnswer> Answer() {
    std::vector<FleetClient::RoleAnswer> answers;
    const bool came = Await([&] {
      answers = client_->TakeAnswers();
      return !answers.empty();
    });
    if (!came || answers.size() != 1) return std::nullopt;
    return std::move(answers[0]);
  }
  RoleCall CallOf(uint64_t sequence) {
    RoleCall call{.id = "w" + std::to_string(sequence), .address = address_};
    call.request.set_role(wire::ROLE_PREFILL);
    call.request.mutable_epoch()->set_sequence(sequence);
    return call;
  }

  rpc::Security security_;  // the servers'; plain text unless set
  FakeConductor conductor_;
  FakeWorker worker_;
  int port_ = 0;
  std::string address_;
  std::vector<std::string> watched_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<FleetClient> client_;
};

TEST_F(FleetClientTest, KeepsTheNewestReport) {
  Dial(Patient());
  ASSERT_TRUE(Await([&] {
    const auto reports = client_->Reports();
    return !reports.empty() && reports[0].report != nullptr &&
           reports[0].report->sequence() >= 3;
  }));
  EXPECT_EQ(client_->Reports()[0].address, address_);
  EXPECT_TRUE(client_->Reports()[0].status.ok());
  EXPECT_EQ(conductor_.streams, 1);
}

TEST_F(FleetClientTest, WatchesAgainAConductorThatRestarted) {
  Dial(Patient({.redial_pause = 10ms}));
  ASSERT_TRUE(Await([&] { return HeardFromStream() == 1; }));
  StopServing();
  ASSERT_TRUE(Await([&] { return !client_->Reports()[0].status.ok(); }));
  EXPECT_NE(client_->Reports()[0].report, nullptr);  // its age says the rest
  Serve(port_);
  ASSERT_TRUE(Await([&] { return HeardFromStream() >= 2; }));
  EXPECT_TRUE(client_->Reports()[0].status.ok());
}

TEST_F(FleetClientTest, DialsAnewAConductorThatFellSilent) {
  conductor_.silent_stream = 1;
  Dial({.report_interval = 100ms, .silence_max = 50ms, .redial_pause = 1ms});
  ASSERT_TRUE(Await([&] { return HeardFromStream() >= 2; }));
}

TEST_F(FleetClientTest, ForgetsConductorsThatAreNotWatched) {
  Dial(Patient());
  ASSERT_TRUE(Await([&] { return HeardFromStream() == 1; }));
  client_->Watch({});
  EXPECT_TRUE(client_->Reports().empty());
  ASSERT_TRUE(Await([&] { return conductor_.ended >= 1; }));
}

TEST_F(FleetClientTest, WatchesNoMoreThanItsBound) {
  Dial(Patient({.conductors_max = 1}));
  watched_ = {address_, "127.0.0.1:1"};
  ASSERT_TRUE(Await([&] { return HeardFromStream() == 1; }));
  EXPECT_EQ(client_->Reports().size(), 1u);
}

TEST_F(FleetClientTest, AnswersWithStateOrError) {
  Dial(Patient());
  client_->SetRole(CallOf(1));
  std::optional<FleetClient::RoleAnswer> answer = Answer();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->id, "w1");
  EXPECT_EQ(answer->state.status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(MessageOf(answer->state.status()), "epoch 7.1 is older");

  client_->SetRole(CallOf(2));
  answer = Answer();
  ASSERT_TRUE(answer.has_value() && answer->state.ok());
  EXPECT_EQ(answer->state->target(), wire::ROLE_PREFILL);
}

TEST_F(FleetClientTest, AWorkerThatHangsIsGivenUp) {
  worker_.hanging = true;
  Dial({.call_timeout = 20ms});
  client_->SetRole(CallOf(2));
  const std::optional<FleetClient::RoleAnswer> answer = Answer();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->id, "w2");
  EXPECT_EQ(answer->state.status().code(), Code::kDeadlineExceeded);
}

TEST_F(FleetClientTest, CallsNoMoreAtOnceThanItsBound) {
  worker_.hanging = true;
  Dial(Patient({.calls_max = 1}));
  client_->SetRole(CallOf(2));
  client_->SetRole(CallOf(3));
  const std::optional<FleetClient::RoleAnswer> answer = Answer();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->id, "w3");
  EXPECT_EQ(answer->state.status().code(), Code::kResourceExhausted);
}

TEST_F(FleetClientTest, SpeaksTlsAndOnlyWithTheRoleThatItExpects) {
  const rpc::KeyPair ca = rpc::TestCa();
  const auto security_of = [&ca](rpc::Component component) {
    auto security =
        rpc::Security::Of(rpc::TestMaterial(ca, rpc::TestRole(component)));
    EXPECT_TRUE(security.ok()) << security.status();
    return *std::move(security);
  };
  StopServing();
  security_ = security_of(rpc::Component::kConductor);
  Serve(0);
  Dial(Patient({.security = security_of(rpc::Component::kController)}));
  ASSERT_TRUE(Await([&] { return HeardFromStream() >= 1; }));
  client_->SetRole(CallOf(2));  // at a conductor, which is no worker
  const std::optional<FleetClient::RoleAnswer> answer = Answer();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->state.status().code(), Code::kUnavailable);
}

TEST_F(FleetClientTest, EndsWithCallsUnderWay) {
  worker_.hanging = true;
  Dial(Patient());
  ASSERT_TRUE(Await([&] { return HeardFromStream() == 1; }));
  client_->SetRole(CallOf(2));
  client_.reset();
}

}  // namespace
}  // namespace tidepool::fleet
