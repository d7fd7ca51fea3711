#include "dataplane/worker/worker_shell_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace tidepool::worker {
namespace {

constexpr engine::KvLayout kLayout = {.num_layers = 1,
                                      .num_kv_heads = 1,
                                      .head_dim = 1,
                                      .page_tokens = 4,
                                      .element_bytes = 4};
constexpr int32_t kPages = 8;

// Takes batches and ends none of them by itself.
class HoldingMessenger : public transfer::Messenger {
 public:
  uint64_t incarnation() const override { return 1; }
  std::string address() const override { return "127.0.0.1:1"; }
  StatusOr<transfer::MemoryRegion> RegisterMemory(std::span<std::byte>,
                                                  int) override {
    return Unimplemented("no memory here");
  }
  StatusOr<transfer::Capability> Grant(const transfer::Window&,
                                       TimePoint) override {
    return Unimplemented("no destination");
  }
  void Revoke(uint64_t, transfer::RevokeDone) override {}
  StatusOr<transfer::Received> ReceivedDigest(uint64_t) const override {
    return Unimplemented("no destination");
  }
  StatusOr<transfer::PeerId> Connect(const transfer::PeerAddress&,
                                     transfer::TransportPolicy) override {
    return transfer::PeerId{1};
  }
  StatusOr<transfer::PeerInfo> Describe(transfer::PeerId) const override {
    return transfer::PeerInfo{.transport = transfer::Transport::kTcp};
  }
  void Disconnect(transfer::PeerId) override {}
  StatusOr<transfer::SubmissionId> Submit(
      transfer::Batch batch, transfer::Completion completion) override {
    if (refuse_next) {
      refuse_next = false;
      return ResourceExhausted("queues are full");
    }
    held.emplace_back(std::move(batch), std::move(completion));
    return held.size();
  }
  void Cancel(transfer::SubmissionId submission) override {
    cancelled.push_back(submission);
  }
  transfer::MessengerStats stats() const override { return {}; }

  bool refuse_next = false;
  std::vector<std::pair<transfer::Batch, transfer::Completion>> held;
  std::vector<transfer::SubmissionId> cancelled;

 private:
  void Unregister(transfer::RegionId) override {}
};

class StreamSenderTest : public testing::Test {
 protected:
  void Open(StreamId stream) {
    auto target = std::make_shared<StreamTarget>();
    target->stream = stream;
    target->transfer_address = "127.0.0.1:2";
    target->capability.add_page_ids(0);
    target->capability.set_num_layers(1);
    target->capability.set_slice_bytes(
        static_cast<uint64_t>(kLayout.slice_bytes()));
    target->capability.set_mac(std::string(32, 'm'));
    sender_.Open(std::move(target));
  }
  void Compute(std::vector<StreamPages> pages) {
    sender_.StartStep(std::move(pages));
    sender_.OnLayer(0);
    sender_.FinishStep(true);
  }
  static StreamPages PageOf(StreamId stream) {
    return {.stream = stream, .first_page = 0, .pages = {3}};
  }

  HoldingMessenger messenger_;
  std::function<void()> on_next_sent_;
  std::vector<SlicesSent> sent_;
  std::vector<StreamId> closed_;
  StreamSender sender_{
      messenger_,
      1,
      transfer::TransportPolicy::kTcp,
      kLayout,
      kPages,
      {.on_sent =
           [this](SlicesSent sent) {
             sent_.push_back(std::move(sent));
             if (on_next_sent_) std::exchange(on_next_sent_, nullptr)();
           },
       .on_closed = [this](StreamId stream) { closed_.push_back(stream); }}};
};

TEST_F(StreamSenderTest, TellsWhatWasSentAndHow) {
  Open(1);
  Compute({PageOf(1)});
  ASSERT_EQ(messenger_.held.size(), 1u);
  const auto& [batch, completion] = messenger_.held[0];
  ASSERT_EQ(batch.slices.size(), 1u);
  EXPECT_EQ(batch.slices[0].local_offset,
            static_cast<uint64_t>(kLayout.SliceOffset(0, 3, kPages)));
  completion({.slices = {{.code = Code::kOk, .checksum = 9}}});
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(sent_[0].ok);
  EXPECT_THAT(sent_[0].checksums, testing::ElementsAre(9));
  EXPECT_EQ(sent_[0].transport, "tcp");
}

TEST_F(StreamSenderTest, ClosingCancelsWhatIsInFlightAndWaitsForIt) {
  Open(1);
  Compute({PageOf(1)});
  sender_.Close(1);
  EXPECT_THAT(messenger_.cancelled, testing::ElementsAre(1));
  EXPECT_THAT(closed_, testing::IsEmpty());
  messenger_.held[0].second(
      {.status = MakeError(Code::kCancelled, "cancelled")});
  EXPECT_THAT(closed_, testing::ElementsAre(1));
}

// A layer brought slices of two streams; while those of the first are being
// submitted, the second is closed.
TEST_F(StreamSenderTest, NothingIsSubmittedAfterTheClose) {
  Open(1);
  Open(2);
  messenger_.refuse_next = true;
  on_next_sent_ = [this] { sender_.Close(2); };
  Compute({PageOf(1), PageOf(2)});
  EXPECT_THAT(messenger_.held, testing::IsEmpty());
  EXPECT_THAT(closed_, testing::ElementsAre(2));
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_FALSE(sent_[0].ok);
  EXPECT_FALSE(sent_[1].ok);
}

TEST_F(StreamSenderTest, ACapabilityThatIsNoneFailsItsSlices) {
  auto target = std::make_shared<StreamTarget>();
  target->stream = 1;
  target->capability.add_page_ids(0);
  target->capability.set_mac("short");
  sender_.Open(std::move(target));
  Compute({PageOf(1)});
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_FALSE(sent_[0].ok);
  EXPECT_THAT(sent_[0].error, testing::HasSubstr("mac"));
}

}  // namespace
}  // namespace tidepool::worker
