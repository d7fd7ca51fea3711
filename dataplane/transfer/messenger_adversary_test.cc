// Peers that break the protocol, on either side, through raw sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>

#include "dataplane/base/digest.h"
#include "dataplane/transfer/frame_io.h"
#include "dataplane/transfer/messenger_testing.h"
#include "dataplane/transfer/socket.h"
#include "dataplane/transfer/wire.h"

namespace tidepool::transfer {
namespace {

using namespace std::chrono_literals;
using internal::Bytes;
using internal::FrameType;

void AwaitEvent(int fd, short events) {
  pollfd waiting{.fd = fd, .events = events};
  constexpr auto kPatienceMs =
      std::chrono::duration_cast<std::chrono::milliseconds>(kPatience).count();
  CHECK(poll(&waiting, 1, kPatienceMs) == 1);
}

// One end of a connection, by hand.
class RawPeer {
 public:
  explicit RawPeer(UniqueFd fd) : fd_(std::move(fd)) {}

  static RawPeer ConnectTo(const Messenger& messenger) {
    auto fd = internal::ConnectTcp(*ParseAddress(messenger.address()), 10s);
    CHECK(fd.ok());
    AwaitEvent(fd->get(), POLLOUT);
    return RawPeer(*std::move(fd));
  }
  static RawPeer ConnectShm(const std::string& name) {
    auto fd = internal::ConnectAbstract(name);
    CHECK(fd.ok());
    return RawPeer(*std::move(fd));
  }

  // False if the connection is gone.
  bool Send(std::span<const std::byte> bytes, UniqueFd descriptor = {}) {
    internal::FrameWriter writer;
    writer.Push({.head = {bytes.begin(), bytes.end()},
                 .descriptor = std::move(descriptor)});
    while (true) {
      const auto flushed = writer.Flush(fd_.get());
      if (!flushed.ok()) return false;
      if (*flushed) return true;
      AwaitEvent(fd_.get(), POLLOUT);
    }
  }

  // The type of the next frame; nullopt when the connection is closed.
  std::optional<FrameType> Receive() {
    while (true) {
      const auto whole = reader_.Poll(fd_.get());
      if (!whole.ok()) return std::nullopt;
      if (*whole) return reader_.header().type;
      AwaitEvent(fd_.get(), POLLIN);
    }
  }
  std::span<const std::byte> head() const { return reader_.head(); }
  const internal::FrameHeader& header() const { return reader_.header(); }
  void ReadPayload(uint64_t bytes) {
    Bytes ignored(bytes);
    for (uint64_t done = 0; done < bytes;) {
      AwaitEvent(fd_.get(), POLLIN);
      const ssize_t got = recv(fd_.get(), ignored.data(), bytes - done, 0);
      CHECK(got > 0);
      done += got;
    }
  }
  void Close() { fd_.Reset(); }

  internal::Welcome Greet(const Messenger& messenger) {
    CHECK(Send(internal::Encode(
        internal::Hello{.sender_incarnation = 1,
                        .receiver_incarnation = messenger.incarnation()})));
    CHECK(Receive() == FrameType::kWelcome);
    return *internal::ParseWelcome(head());
  }

 private:
  UniqueFd fd_;
  internal::FrameReader reader_;
};

class DestinationTest : public testing::Test {
 protected:
  static constexpr uint64_t kSlice = 1024;
  static constexpr uint64_t kPages = 8;

  explicit DestinationTest(MessengerOptions options = Patient())
      : node_(kPages * kSlice, options) {}

  Capability Grant() {
    return *node_.messenger->Grant({.region = node_.region.id(),
                                    .page_ids = {0, 1, 2, 3, 4, 5, 6, 7},
                                    .num_layers = 1,
                                    .layer_stride_bytes = kPages * kSlice,
                                    .slice_bytes = kSlice},
                                   In(kPatience));
  }

  static internal::WriteHead HeadFor(const Capability& capability,
                                     std::vector<internal::WireSlice> slices) {
    return {.batch = 1,
            .capability = capability.id,
            .incarnation = capability.incarnation,
            .generation = capability.generation,
            .mac = capability.mac,
            .slice_bytes = kSlice,
            .slices = std::move(slices)};
  }

  static Bytes Payload(int value) { return Bytes(kSlice, std::byte(value)); }

  static Bytes Join(Bytes head, const Bytes& payload) {
    head.insert(head.end(), payload.begin(), payload.end());
    return head;
  }

  // The codes of the acknowledgement that comes next.
  static std::vector<Code> Acknowledged(RawPeer& peer) {
    if (peer.Receive() != FrameType::kAck) return {};
    return internal::ParseAck(peer.head())->codes;
  }

  TestNode node_;
};

TEST_F(DestinationTest, RefusesDamagedSlicesAlone) {
  const Capability capability = Grant();
  RawPeer peer = RawPeer::ConnectTo(*node_.messenger);
  peer.Greet(*node_.messenger);
  const auto head = HeadFor(
      capability, {{.extent = 0, .checksum = Checksum64(Payload(1))},
                   {.extent = 1, .checksum = Checksum64(Payload(2)) ^ 1}});
  ASSERT_TRUE(peer.Send(
      Join(Join(internal::EncodeWrite(head), Payload(1)), Payload(2))));
  EXPECT_THAT(Acknowledged(peer),
              testing::ElementsAre(Code::kOk, Code::kDataLoss));
  EXPECT_EQ(node_.messenger->ReceivedDigest(capability.id)->extents, 1u);
  EXPECT_EQ(node_.messenger->stats().corrupt_slices, 1u);
}

TEST_F(DestinationTest, AnExtentBeingRewrittenCountsAsMissing) {
  const Capability capability = Grant();
  RawPeer peer = RawPeer::ConnectTo(*node_.messenger);
  peer.Greet(*node_.messenger);
  const Bytes good = Join(
      internal::EncodeWrite(HeadFor(
          capability, {{.extent = 0, .checksum = Checksum64(Payload(1))}})),
      Payload(1));
  ASSERT_TRUE(peer.Send(good));
  EXPECT_THAT(Acknowledged(peer), testing::ElementsAre(Code::kOk));
  ASSERT_TRUE(peer.Send(Join(
      internal::EncodeWrite(HeadFor(
          capability, {{.extent = 0, .checksum = Checksum64(Payload(1))}})),
      Payload(7))));
  EXPECT_THAT(Acknowledged(peer), testing::ElementsAre(Code::kDataLoss));
  EXPECT_EQ(node_.messenger->ReceivedDigest(capability.id)->extents, 0u);
}

// A connection stalls within a slice; another writes the same extent; what the
// first sends then must not land.
TEST_F(DestinationTest, TheNewerOfTwoWritesToAnExtentWins) {
  const Capability capability = Grant();
  RawPeer old_peer = RawPeer::ConnectTo(*node_.messenger);
  old_peer.Greet(*node_.messenger);
  const Bytes old_bytes = Join(
      Join(
          internal::EncodeWrite(HeadFor(
              capability, {{.extent = 2, .checksum = Checksum64(Payload(1))},
                           {.extent = 3, .checksum = Checksum64(Payload(1))}})),
          Payload(1)),
      Payload(1));
  ASSERT_TRUE(old_peer.Send(std::span(old_bytes).first(old_bytes.size() - 1)));
  // Its frame has been admitted once its first slice is there.
  const TimePoint give_up = In(kPatience);
  while (node_.messenger->ReceivedDigest(capability.id)->extents == 0 &&
         Clock::Monotonic().Now() < give_up)
    std::this_thread::yield();

  RawPeer peer = RawPeer::ConnectTo(*node_.messenger);
  peer.Greet(*node_.messenger);
  ASSERT_TRUE(peer.Send(Join(
      internal::EncodeWrite(HeadFor(
          capability, {{.extent = 3, .checksum = Checksum64(Payload(2))}})),
      Payload(2))));
  EXPECT_THAT(Acknowledged(peer), testing::ElementsAre(Code::kOk));
  ASSERT_TRUE(old_peer.Send(std::span(old_bytes).last(1)));
  EXPECT_THAT(Acknowledged(old_peer),
              testing::ElementsAre(Code::kOk, Code::kAborted));
  EXPECT_TRUE(std::ranges::equal(node_.memory().subspan(3 * kSlice, kSlice),
                                 Payload(2)));
  EXPECT_EQ(node_.messenger->ReceivedDigest(capability.id)->extents, 2u);
}

TEST_F(DestinationTest, RevocationDoesNotWaitForAWriterThatStalls) {
  const Capability capability = Grant();
  RawPeer peer = RawPeer::ConnectTo(*node_.messenger);
  peer.Greet(*node_.messenger);
  const Bytes bytes = Join(
      internal::EncodeWrite(HeadFor(
          capability, {{.extent = 0, .checksum = Checksum64(Payload(1))}})),
      Payload(1));
  ASSERT_TRUE(peer.Send(std::span(bytes).first(bytes.size() / 2)));
  ASSERT_TRUE(RevokeAndWait(*node_.messenger, capability.id).ok());
  std::ranges::fill(node_.memory(), std::byte{9});
  ASSERT_TRUE(peer.Send(std::span(bytes).subspan(bytes.size() / 2)));
  EXPECT_THAT(Acknowledged(peer),
              testing::ElementsAre(Code::kFailedPrecondition));
  EXPECT_TRUE(std::ranges::all_of(
      node_.memory(), [](std::byte byte) { return byte == std::byte{9}; }));
}

TEST_F(DestinationTest, ClosesConnectionsThatDoNotSpeakTheProtocol) {
  const Bytes hello = internal::Encode(
      internal::Hello{.sender_incarnation = 1,
                      .receiver_incarnation = node_.messenger->incarnation()});
  const auto with = [&](size_t at, uint8_t value) {
    Bytes bytes = hello;
    bytes[at] = std::byte{value};
    return bytes;
  };
  const std::vector<Bytes> openings = {
      Bytes(100, std::byte{'G'}),  // no magic
      with(4, 9),                  // version
      with(5, 0),                  // type
      with(5, 99),
      with(6, 1),      // flags
      with(8, 0),      // head too short for a hello
      with(10, 0xff),  // head of 16 MiB
      with(16, 1),     // payload on a hello
      internal::Encode(internal::Ack{.codes = {Code::kOk}}),  // no hello
      internal::EncodeWrite(HeadFor(Grant(), {{.extent = 0}})),
  };
  for (size_t i = 0; i < openings.size(); ++i) {
    RawPeer peer = RawPeer::ConnectTo(*node_.messenger);
    peer.Send(openings[i]);
    const auto answer = peer.Receive();
    EXPECT_TRUE(!answer || answer == FrameType::kGoodbye) << i;
    if (answer) {
      EXPECT_EQ(peer.Receive(), std::nullopt) << i;
    }
  }
  EXPECT_GE(node_.messenger->stats().rejected_connections, openings.size());
}

TEST_F(DestinationTest, RefusesFramesOfTheOtherTransport) {
  RawPeer peer = RawPeer::ConnectTo(*node_.messenger);
  peer.Greet(*node_.messenger);
  peer.Send(internal::EncodeCopy(HeadFor(Grant(), {{.extent = 0}})));
  EXPECT_EQ(peer.Receive(), FrameType::kGoodbye);
}

TEST_F(DestinationTest, RefusesRegionsThatCouldShrink) {
  RawPeer tcp = RawPeer::ConnectTo(*node_.messenger);
  const std::string shm_name = tcp.Greet(*node_.messenger).shm_name;
  RawPeer peer = RawPeer::ConnectShm(shm_name);
  peer.Greet(*node_.messenger);
  UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  ASSERT_TRUE(peer.Send(
      internal::Encode(internal::RegionOffer{.region = 1, .bytes = 4096}),
      std::move(unsealed)));
  ASSERT_EQ(peer.Receive(), FrameType::kRegionMapped);
  EXPECT_THAT(internal::ParseRegionMapped(peer.head())->error,
              testing::HasSubstr("not sealed"));
}

TEST_F(DestinationTest, RefusesRegionsOfAnotherSizeOrWithoutDescriptor) {
  RawPeer tcp = RawPeer::ConnectTo(*node_.messenger);
  RawPeer peer = RawPeer::ConnectShm(tcp.Greet(*node_.messenger).shm_name);
  peer.Greet(*node_.messenger);
  SharedMemory memory = *SharedMemory::Create("small", 4096);
  ASSERT_TRUE(peer.Send(
      internal::Encode(internal::RegionOffer{.region = 1, .bytes = 8192}),
      UniqueFd(dup(memory.fd()))));
  ASSERT_EQ(peer.Receive(), FrameType::kRegionMapped);
  EXPECT_NE(internal::ParseRegionMapped(peer.head())->error, "");
  ASSERT_TRUE(peer.Send(
      internal::Encode(internal::RegionOffer{.region = 1, .bytes = 4096})));
  ASSERT_EQ(peer.Receive(), FrameType::kRegionMapped);
  EXPECT_NE(internal::ParseRegionMapped(peer.head())->error, "");
}

TEST_F(DestinationTest, RefusesToCopyFromOutsideOfTheSharedRegion) {
  RawPeer tcp = RawPeer::ConnectTo(*node_.messenger);
  RawPeer peer = RawPeer::ConnectShm(tcp.Greet(*node_.messenger).shm_name);
  peer.Greet(*node_.messenger);
  SharedMemory memory = *SharedMemory::Create("source", 4096);
  ASSERT_TRUE(peer.Send(
      internal::Encode(internal::RegionOffer{.region = 5, .bytes = 4096}),
      UniqueFd(dup(memory.fd()))));
  ASSERT_EQ(peer.Receive(), FrameType::kRegionMapped);
  internal::WriteHead head =
      HeadFor(Grant(), {{.extent = 0, .source_offset = 4096 - kSlice + 1},
                        {.extent = 1, .source_offset = ~uint64_t{0}},
                        {.extent = 2,
                         .checksum = Checksum64(Payload(0)),
                         .source_offset = 4096 - kSlice}});
  head.source_region = 5;
  ASSERT_TRUE(peer.Send(internal::EncodeCopy(head)));
  EXPECT_THAT(
      Acknowledged(peer),
      testing::ElementsAre(Code::kOutOfRange, Code::kOutOfRange, Code::kOk));
  head.source_region = 6;
  ASSERT_TRUE(peer.Send(internal::EncodeCopy(head)));
  EXPECT_THAT(Acknowledged(peer), testing::Each(Code::kFailedPrecondition));
}

TEST_F(DestinationTest, SharedMemoryCannotBeWrittenThroughItsDescriptor) {
  EXPECT_EQ(mmap(nullptr, kSlice, PROT_READ | PROT_WRITE, MAP_SHARED,
                 node_.pool.fd(), 0),
            MAP_FAILED);
  EXPECT_NE(ftruncate(node_.pool.fd(), 1), 0);
}

class ImpatientDestinationTest : public DestinationTest {
 protected:
  ImpatientDestinationTest() : DestinationTest({.hello_timeout = 50ms}) {}
};

TEST_F(ImpatientDestinationTest, ClosesConnectionsThatDoNotSayHello) {
  RawPeer peer = RawPeer::ConnectTo(*node_.messenger);
  const auto answer = peer.Receive();
  EXPECT_TRUE(!answer || answer == FrameType::kGoodbye);
}

class CrowdedDestinationTest : public DestinationTest {
 protected:
  CrowdedDestinationTest()
      : DestinationTest(Patient({.max_inbound_connections = 2})) {}
};

TEST_F(CrowdedDestinationTest, RefusesConnectionsAboveTheBound) {
  RawPeer first = RawPeer::ConnectTo(*node_.messenger);
  first.Greet(*node_.messenger);
  RawPeer second = RawPeer::ConnectTo(*node_.messenger);
  second.Greet(*node_.messenger);
  RawPeer third = RawPeer::ConnectTo(*node_.messenger);
  EXPECT_EQ(third.Receive(), std::nullopt);
}

// A destination that this test plays by hand.
class SourceTest : public testing::Test {
 protected:
  static constexpr uint64_t kIncarnation = 77;

  explicit SourceTest(
      MessengerOptions options = Patient({.connect_backoff = 1ms}))
      : node_(1 << 20, options) {
    auto listener = ListenTcp("127.0.0.1", 0);
    CHECK(listener.ok());
    listener_ = *std::move(listener);
    peer_ = *node_.messenger->Connect(
        {.address = fmt::format("127.0.0.1:{}", *BoundPort(listener_.get())),
         .incarnation = kIncarnation},
        TransportPolicy::kTcp);
  }

  RawPeer Accept() {
    AwaitEvent(listener_.get(), POLLIN);
    auto fd = internal::Accept(listener_.get());
    CHECK(fd.ok());
    return RawPeer(*std::move(fd));
  }

  RawPeer AcceptAndWelcome() {
    RawPeer peer = Accept();
    CHECK(peer.Receive() == FrameType::kHello);
    CHECK(peer.Send(
        internal::Encode(internal::Welcome{.incarnation = kIncarnation})));
    return peer;
  }

  StatusOr<SubmissionId> Submit(PendingBatch& pending, Duration deadline,
                                uint64_t slice_bytes = 1 << 20) {
    auto capability = std::make_shared<Capability>();
    capability->window = {
        .page_ids = {0}, .num_layers = 1, .slice_bytes = slice_bytes};
    return node_.messenger->Submit(
        {.peer = peer_,
         .capability = capability,
         .local_region = node_.region.id(),
         .slices = {{.extent = 0, .local_offset = 0}},
         .deadline = In(deadline)},
        pending.completion());
  }

  static void Acknowledge(RawPeer& peer, const internal::WriteHead& head) {
    CHECK(peer.Send(internal::Encode(internal::Ack{
        .batch = head.batch,
        .first_slice = head.first_slice,
        .codes = std::vector<Code>(head.slices.size(), Code::kOk)})));
  }

  UniqueFd listener_;
  TestNode node_;
  PeerId peer_ = 0;
};

TEST_F(SourceTest, TheDeadlineEndsABatchThatIsNeverAcknowledged) {
  PendingBatch pending;
  ASSERT_TRUE(Submit(pending, 50ms).ok());
  RawPeer peer = AcceptAndWelcome();
  EXPECT_EQ(pending.Wait().status.code(), Code::kDeadlineExceeded);
}

TEST_F(SourceTest, TheDeadlineEndsABatchWhosePeerNeverAnswers) {
  PendingBatch pending;
  ASSERT_TRUE(Submit(pending, 50ms).ok());
  EXPECT_EQ(pending.Wait().status.code(), Code::kDeadlineExceeded);
}

// The frame on the wire is completed with zeros, so that the connection can
// serve the next batch.
TEST_F(SourceTest, CancellingWithinAFrameKeepsTheConnection) {
  RawPeer peer = AcceptAndWelcome();
  node_.FillRandomly(3);
  PendingBatch cancelled;
  const auto id = Submit(cancelled, kPatience);
  ASSERT_TRUE(id.ok());
  ASSERT_EQ(peer.Receive(), FrameType::kWrite);  // begun, not read
  node_.messenger->Cancel(*id);
  EXPECT_EQ(cancelled.Wait().status.code(), Code::kCancelled);
  peer.ReadPayload(peer.header().payload_bytes);

  PendingBatch pending;
  ASSERT_TRUE(Submit(pending, kPatience, 4096).ok());
  ASSERT_EQ(peer.Receive(), FrameType::kWrite);
  const auto head = internal::ParseWrite(peer.header(), peer.head());
  ASSERT_TRUE(head.ok());
  peer.ReadPayload(4096);
  // An answer to the cancelled batch is late, not wrong.
  peer.Send(internal::Encode(
      internal::Ack{.batch = *id, .codes = {Code::kDataLoss}}));
  peer.Send(internal::Encode(
      internal::Ack{.batch = head->batch, .codes = {Code::kOk}}));
  EXPECT_TRUE(pending.Wait().status.ok());
}

TEST_F(SourceTest, SendsAgainWhatALostConnectionDidNotAcknowledge) {
  PendingBatch pending;
  ASSERT_TRUE(Submit(pending, kPatience, 4096).ok());
  {
    RawPeer peer = AcceptAndWelcome();
    ASSERT_EQ(peer.Receive(), FrameType::kWrite);
  }
  RawPeer peer = AcceptAndWelcome();
  ASSERT_EQ(peer.Receive(), FrameType::kWrite);
  const auto head = internal::ParseWrite(peer.header(), peer.head());
  peer.ReadPayload(4096);
  peer.Send(internal::Encode(
      internal::Ack{.batch = head->batch, .codes = {Code::kOk}}));
  EXPECT_TRUE(pending.Wait().status.ok());
}

TEST_F(SourceTest, GivesUpOnAPeerThatDiesInTheMiddleAgainAndAgain) {
  PendingBatch pending;
  ASSERT_TRUE(Submit(pending, kPatience, 4096).ok());
  for (int i = 0; i < 3; ++i) {
    RawPeer peer = AcceptAndWelcome();
    ASSERT_EQ(peer.Receive(), FrameType::kWrite);
  }
  EXPECT_EQ(pending.Wait().status.code(), Code::kUnavailable);
}

TEST_F(SourceTest, SurvivesAcknowledgementsOfWhatWasNeverSent) {
  PendingBatch pending;
  ASSERT_TRUE(Submit(pending, kPatience, 4096).ok());
  RawPeer peer = AcceptAndWelcome();
  ASSERT_EQ(peer.Receive(), FrameType::kWrite);
  const auto head = internal::ParseWrite(peer.header(), peer.head());
  peer.Send(
      internal::Encode(internal::Ack{.batch = 999, .codes = {Code::kOk}}));
  peer.Send(internal::Encode(internal::Ack{.batch = head->batch,
                                           .first_slice = ~uint32_t{0},
                                           .codes = {Code::kOk, Code::kOk}}));
  peer.Send(internal::Encode(
      internal::Ack{.batch = head->batch, .codes = {Code::kOk}}));
  EXPECT_TRUE(pending.Wait().status.ok());
}

// More slices than may be unacknowledged, so that the last is not sent yet.
TEST_F(SourceTest, AnAcknowledgementBeforeTheSliceCountsForNothing) {
  constexpr uint32_t kFrame = 2048, kFrames = 4, kLast = kFrame * kFrames;
  node_.FillRandomly(5);
  auto capability = std::make_shared<Capability>();
  capability->window = {.num_layers = 1, .slice_bytes = 8};
  capability->window.page_ids.resize(kLast + 1);
  PendingBatch pending;
  ASSERT_TRUE(node_.messenger
                  ->Submit({.peer = peer_,
                            .capability = capability,
                            .local_region = node_.region.id(),
                            .slices = SlicesInOrder(*capability),
                            .deadline = In(kPatience)},
                           pending.completion())
                  .ok());
  RawPeer peer = AcceptAndWelcome();
  for (uint32_t frame = 0; frame <= kFrames; ++frame) {
    ASSERT_EQ(peer.Receive(), FrameType::kWrite);
    const auto head = internal::ParseWrite(peer.header(), peer.head());
    ASSERT_EQ(head->first_slice, frame * kFrame);
    peer.ReadPayload(peer.header().payload_bytes);
    if (frame == 0)
      peer.Send(internal::Encode(internal::Ack{
          .batch = head->batch, .first_slice = kLast, .codes = {Code::kOk}}));
    Acknowledge(peer, *head);
  }
  const BatchResult& result = pending.Wait();
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.slices[kLast].checksum,
            Checksum64(node_.memory().subspan(kLast * 8, 8)));
}

class ImpatientSourceTest : public SourceTest {
 protected:
  ImpatientSourceTest()
      : SourceTest({.hello_timeout = 10ms, .connect_backoff = 1ms}) {}
};

TEST_F(ImpatientSourceTest, APeerThatNeverSaysWelcomeIsUnavailable) {
  PendingBatch pending;
  ASSERT_TRUE(Submit(pending, kPatience).ok());
  const BatchResult& result = pending.Wait();
  EXPECT_EQ(result.status.code(), Code::kUnavailable);
  EXPECT_EQ(result.slices[0].code, result.status.code());
}

TEST_F(SourceTest, DropsAPeerThatSpeaksNonsense) {
  PendingBatch pending;
  ASSERT_TRUE(Submit(pending, kPatience, 4096).ok());
  RawPeer peer = AcceptAndWelcome();
  peer.Send(Bytes(64, std::byte{0xee}));
  EXPECT_FALSE(pending.Wait().status.ok());
}

}  // namespace
}  // namespace tidepool::transfer
