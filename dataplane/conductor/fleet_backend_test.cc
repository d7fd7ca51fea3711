#include "dataplane/conductor/fleet_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>

#include "dataplane/base/bounded_queue.h"
#include "dataplane/base/log.h"
#include "dataplane/conductor/http_test_client.h"

namespace tidepool::conductor {
namespace {

constexpr auto kPatience = RawClient::kPatience;

template <typename T>
T Next(BoundedQueue<T>& queue) {
  std::optional<T> next = queue.Pop(kPatience);
  EXPECT_TRUE(next.has_value());
  return next ? std::move(*next) : T{};
}

// A worker's side of a stream.
class FakeStream : public WorkerStream {
 public:
  explicit FakeStream(Events events) : events_(std::move(events)) {}

  void Send(wire::SessionRequest message) override {
    EXPECT_TRUE(sent.TryPush(std::move(message)));
  }
  void ReadNext() override { EXPECT_TRUE(credits.TryPush(1)); }
  void Close(std::string_view reason) override {
    EXPECT_TRUE(closed.TryPush(std::string(reason)));
  }

  // Waits until the backend asks for more, as the real stream does.
  void Deliver(wire::SessionResponse message) {
    message.set_sequence(++sequence_);
    events_.message(std::move(message));
    Next(credits);
  }
  void Describe(float load_progress) {
    wire::DescribeResponse description;
    description.set_role(wire::ROLE_DECODE);
    description.set_load_progress(load_progress);
    events_.described(description);
  }
  void Disconnect() { events_.disconnected(Unavailable("gone")); }

  void Greet() {
    wire::SessionResponse hello;
    wire::DescribeResponse& description =
        *hello.mutable_hello()->mutable_description();
    description.set_incarnation(1);
    description.set_role(wire::ROLE_DECODE);
    description.set_max_model_len(1000);
    description.set_max_num_seqs(8);
    description.mutable_identity()->set_page_tokens(16);
    Deliver(hello);
    wire::SessionResponse load;
    load.mutable_load()->set_pages_total(100);
    load.mutable_load()->set_pages_free(100);
    Deliver(load);
  }
  void Output(const wire::RequestHeader& header, uint32_t first, int32_t token,
              wire::FinishReason finish = wire::FINISH_REASON_UNSPECIFIED) {
    wire::SessionResponse message;
    wire::RequestOutput& output = *message.mutable_outputs()->add_outputs();
    output.set_request_id(header.request_id());
    output.set_attempt(header.attempt());
    output.set_first_index(first);
    output.add_tokens(token);
    output.set_finish_reason(finish);
    Deliver(message);
  }

  std::string address;  // that was dialled
  BoundedQueue<wire::SessionRequest> sent{64};
  BoundedQueue<std::string> closed{4};
  BoundedQueue<int> credits{64};

 private:
  const Events events_;
  uint64_t sequence_ = 0;
};

class FakeDialer : public WorkerDialer {
 public:
  std::shared_ptr<WorkerStream> Dial(const std::string& address,
                                     WorkerStream::Events events) override {
    auto stream = std::make_shared<FakeStream>(std::move(events));
    stream->address = address;
    EXPECT_TRUE(dialed.TryPush(std::shared_ptr<FakeStream>(stream)));
    return stream;
  }
  BoundedQueue<std::shared_ptr<FakeStream>> dialed{16};
};

class FakeListener : public GenerationListener {
 public:
  struct Told {
    wire::RequestOutput output;
    std::string decode_worker;  // of the attempt, if told
  };
  void OnOutput(wire::RequestOutput output,
                const AttemptRecord* attempt) override {
    EXPECT_TRUE(outputs.TryPush(
        {std::move(output), attempt ? attempt->decode_worker : ""}));
  }
  void OnEnd(Status status, RequestRecord) override {
    EXPECT_TRUE(ends.TryPush(std::move(status)));
  }
  BoundedQueue<Told> outputs{64};
  BoundedQueue<Status> ends{4};
};

class FleetBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    ConductorCoreConfig config;
    config.conductor_id = "c";
    config.incarnation = 7;
    config.silence_timeout = silence_timeout_;
    config.max_workers = max_workers_;
    auto backend =
        FleetBackend::Start(config, placement_, dialer_, Clock::Monotonic(),
                            {{.name = "decode-0", .address = "here:1"}});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    stream_ = Next(dialer_.dialed);
    EXPECT_EQ(stream_->address, "here:1");
    EXPECT_EQ(Next(stream_->sent).hello().conductor_id(), "c");
  }

  std::shared_ptr<FakeListener> Submit(const std::string& id) {
    auto listener = std::make_shared<FakeListener>();
    backend_->Submit({.id = id, .prompt = {1, 2, 3}}, listener);
    return listener;
  }

  Duration silence_timeout_ = std::chrono::hours(1);
  uint32_t max_workers_ = 8;
  const scheduling::LeastLoadedPlacement placement_;
  FakeDialer dialer_;
  std::unique_ptr<FleetBackend> backend_;
  std::shared_ptr<FakeStream> stream_;
};

TEST_F(FleetBackendTest, RunsARequest) {
  stream_->Greet();
  const auto listener = Submit("a");
  const wire::SessionRequest submitted = Next(stream_->sent);
  ASSERT_TRUE(submitted.has_submit());
  const wire::RequestHeader& header = submitted.submit().header();
  stream_->Output(header, 0, 5);
  stream_->Output(header, 1, 6, wire::FINISH_REASON_LENGTH);
  const FakeListener::Told first = Next(listener->outputs);
  EXPECT_EQ(first.output.tokens(0), 5);
  EXPECT_EQ(first.decode_worker, "decode-0");
  const FakeListener::Told second = Next(listener->outputs);
  EXPECT_EQ(second.output.tokens(0), 6);
  EXPECT_EQ(second.decode_worker, "");  // told once for each attempt
  EXPECT_TRUE(Next(listener->ends).ok());
}

TEST_F(FleetBackendTest, CancelsAtTheWorker) {
  stream_->Greet();
  const auto listener = Submit("a");
  ASSERT_TRUE(Next(stream_->sent).has_submit());
  backend_->Cancel("a", "enough");
  EXPECT_EQ(Next(stream_->sent).cancel().header().request_id(), "a");
  EXPECT_EQ(Next(listener->ends).code(), Code::kCancelled);
  backend_->Cancel("a", "again");  // has ended: nothing happens
}

TEST_F(FleetBackendTest, ContinuesOverANewStream) {
  stream_->Greet();
  const auto listener = Submit("a");
  const wire::SessionRequest submitted = Next(stream_->sent);
  stream_->Output(submitted.submit().header(), 0, 5);
  stream_->Disconnect();
  const std::shared_ptr<FakeStream> again = Next(dialer_.dialed);
  EXPECT_TRUE(Next(again->sent).has_hello());
  again->Greet();
  const wire::SessionRequest retried = Next(again->sent);
  EXPECT_EQ(retried.submit().header().attempt(), 2u);
  EXPECT_THAT(retried.submit().request().tokens(),
              testing::ElementsAre(1, 2, 3, 5));
  again->Output(retried.submit().header(), 1, 6, wire::FINISH_REASON_STOP);
  EXPECT_EQ(Next(listener->outputs).output.tokens(0), 5);
  const FakeListener::Told second = Next(listener->outputs);
  EXPECT_EQ(second.output.tokens(0), 6);
  EXPECT_EQ(second.decode_worker, "decode-0");
  EXPECT_TRUE(Next(listener->ends).ok());
}

TEST_F(FleetBackendTest, FollowsWhatIsDiscovered) {
  stream_->Greet();
  // One of them is known already, and is nobody's to remove.
  backend_->OnDiscovered(0, {"here:1", "there:1"});
  const std::shared_ptr<FakeStream> there = Next(dialer_.dialed);
  EXPECT_EQ(there->address, "there:1");
  EXPECT_TRUE(Next(there->sent).has_hello());
  there->Greet();
  for (int i = 0; i < 5; ++i) backend_->OnDiscovered(0, {});
  // It is there until its session is over, whatever the name says.
  const auto listeners = {Submit("a"), Submit("b")};
  EXPECT_TRUE(Next(stream_->sent).has_submit());
  EXPECT_TRUE(Next(there->sent).has_submit());
  there->Disconnect();
  EXPECT_TRUE(Next(stream_->sent).has_submit());
  backend_->OnDiscovered(0, {});
  const TimePoint end = Clock::Monotonic().Now() + kPatience;
  while (backend_->Snapshot()->workers.size() > 1 &&
         Clock::Monotonic().Now() < end)
    std::this_thread::yield();
  ASSERT_EQ(backend_->Snapshot()->workers.size(), 1u);
  EXPECT_EQ(backend_->Snapshot()->workers[0].address, "here:1");
  backend_.reset();
  for (const auto& listener : listeners)
    EXPECT_FALSE(Next(listener->ends).ok());
}

class CrowdedFleetBackendTest : public FleetBackendTest {
 protected:
  CrowdedFleetBackendTest() { max_workers_ = 1; }
};

TEST_F(CrowdedFleetBackendTest, SaysOnceThatSomeAreLeftOut) {
  ASSERT_TRUE(InitLogging({}).ok());
  testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) backend_->OnDiscovered(0, {"a:1", "b:1"});
  backend_.reset();
  const std::string logged = testing::internal::GetCapturedStderr();
  const size_t first = logged.find("at most 1 workers");
  EXPECT_NE(first, logged.npos) << logged;
  EXPECT_EQ(logged.find("at most 1 workers", first + 1), logged.npos) << logged;
}

TEST_F(FleetBackendTest, ShowsAWorkerThatLoads) {
  stream_->Describe(0.25);
  stream_->Disconnect();
  const TimePoint end = Clock::Monotonic().Now() + kPatience;
  WorkerStatus worker;
  while (!worker.loading && Clock::Monotonic().Now() < end) {
    worker = backend_->Snapshot()->workers.at(0);
    std::this_thread::yield();
  }
  EXPECT_TRUE(worker.loading);
  EXPECT_EQ(worker.description.load_progress(), 0.25f);
  const auto again = Next(dialer_.dialed);
  EXPECT_TRUE(Next(again->sent).has_hello());
  again->Greet();
  const auto listener = Submit("a");
  ASSERT_TRUE(Next(again->sent).has_submit());
}

class ImpatientFleetBackendTest : public FleetBackendTest {
 protected:
  ImpatientFleetBackendTest() {
    silence_timeout_ = std::chrono::milliseconds(200);
  }
};

// Nobody tells of it: only time passes.
TEST_F(ImpatientFleetBackendTest, ShowsThatASilentWorkerIsGone) {
  stream_->Greet();
  Next(stream_->closed);
  const TimePoint end = Clock::Monotonic().Now() + kPatience;
  WorkerStatus worker;
  while (worker.failures == 0 && Clock::Monotonic().Now() < end) {
    worker = backend_->Snapshot()->workers.at(0);
    std::this_thread::yield();
  }
  EXPECT_EQ(worker.failures, 1u);
  EXPECT_FALSE(worker.connected);
  EXPECT_FALSE(backend_->Snapshot()->ready);
}

TEST_F(FleetBackendTest, EndsAtOnceWhatCannotBe) {
  const auto listener = std::make_shared<FakeListener>();
  backend_->Submit({.id = "a", .prompt = {}}, listener);
  EXPECT_EQ(Next(listener->ends).code(), Code::kInvalidArgument);
}

TEST_F(FleetBackendTest, EndsEverythingWhenItGoes) {
  stream_->Greet();
  const auto listener = Submit("a");
  ASSERT_TRUE(Next(stream_->sent).has_submit());
  backend_.reset();
  EXPECT_EQ(Next(listener->ends).code(), Code::kUnavailable);
  Next(stream_->closed);
}

}  // namespace
}  // namespace tidepool::conductor
