#include "dataplane/transfer/inbound_connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <thread>

#include "dataplane/base/check.h"
#include "dataplane/base/notification.h"

namespace tidepool::transfer::internal {
namespace {

using namespace std::chrono_literals;

TimePoint Now() { return Clock::Monotonic().Now(); }

// One connection whose patience is tried at times that this test makes up.
class InboundPatienceTest : public testing::Test {
 protected:
  static constexpr uint64_t kSlice = 1024;
  static constexpr uint64_t kIncarnation = 7;

  InboundPatienceTest()
      : options_{.incarnation = kIncarnation,
                 .hello_timeout = 1h,
                 .stall_timeout = 2h,
                 .idle_timeout = 3h},
        loop_(*EventLoop::Create()),
        memory_(kSlice) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                     ends) == 0);
    peer_.Reset(ends[0]);
    connection_ = std::make_unique<InboundConnection>(
        context_, UniqueFd(ends[1]), Transport::kTcp);
    CHECK(connection_->Start().ok());
    thread_ = std::thread([this] { loop_->Run(); });
  }

  ~InboundPatienceTest() override {
    OnLoop([this] {
      connection_.reset();
      loop_->Stop();
    });
    thread_.join();
  }

  // After all that has been sent has been read.
  void OnLoop(const std::function<void()>& run) {
    Notification done;
    loop_->Post([&] {
      run();
      done.Notify();
    });
    done.Wait();
  }

  // Sends it, and returns when it has been read.
  void Send(std::span<const std::byte> bytes) {
    CHECK(send(peer_.get(), bytes.data(), bytes.size(), 0) ==
          static_cast<ssize_t>(bytes.size()));
    OnLoop([] {});
  }

  void Greet() { Send(Encode(Hello{.receiver_incarnation = kIncarnation})); }

  // The frame of a slice, without the slice.
  void BeginWrite() {
    const Capability capability = *grants_.Add(
        memory_,
        {.region = 1, .page_ids = {0}, .num_layers = 1, .slice_bytes = kSlice},
        TimePoint::max());
    Send(EncodeWrite({.capability = capability.id,
                      .incarnation = kIncarnation,
                      .generation = capability.generation,
                      .mac = capability.mac,
                      .slice_bytes = kSlice,
                      .slices = {{.extent = 0}}}));
  }

  bool ClosesAt(TimePoint time) {
    OnLoop([&] { connection_->CloseIfStuck(time); });
    return closed_;
  }

  const MessengerOptions options_;
  const std::unique_ptr<EventLoop> loop_;
  std::vector<std::byte> memory_;
  GrantTable grants_{kIncarnation, 10, 10};
  Counters counters_;
  bool closed_ = false;
  InboundContext context_{
      .loop = *loop_,
      .grants = grants_,
      .counters = counters_,
      .options = options_,
      .on_admit = [](const InboundConnection&, const WriteHead&) {},
      .on_closed = [this](const InboundConnection&) { closed_ = true; }};
  UniqueFd peer_;
  std::unique_ptr<InboundConnection> connection_;
  std::thread thread_;
};

TEST_F(InboundPatienceTest, WaitsForAHelloAsLongAsItSays) {
  EXPECT_FALSE(ClosesAt(Now() + 59min));
  EXPECT_TRUE(ClosesAt(Now() + 1h));
}

TEST_F(InboundPatienceTest, ABeginningOfAHelloIsNone) {
  const TimePoint before = Now();
  const Bytes hello = Encode(Hello{.receiver_incarnation = kIncarnation});
  Send(std::span(hello).first(9));
  EXPECT_TRUE(ClosesAt(before + 1h));
}

TEST_F(InboundPatienceTest, WaitsForTheRestOfAFrameAsLongAsItSays) {
  Greet();
  BeginWrite();
  EXPECT_FALSE(ClosesAt(Now() + 119min));
  EXPECT_TRUE(ClosesAt(Now() + 2h));
}

TEST_F(InboundPatienceTest, WaitsForFramesAsLongAsItSays) {
  Greet();
  EXPECT_FALSE(ClosesAt(Now() + 179min));
  EXPECT_TRUE(ClosesAt(Now() + 3h));
}

TEST_F(InboundPatienceTest, PartOfASliceIsProgress) {
  Greet();
  BeginWrite();
  const TimePoint before = Now();
  Send(std::vector<std::byte>(kSlice / 2));
  EXPECT_FALSE(ClosesAt(before + 2h));
}

}  // namespace
}  // namespace tidepool::transfer::internal
