#include "dataplane/transfer/messenger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <thread>

#include "dataplane/base/digest.h"
#include "dataplane/transfer/messenger_testing.h"
#include "dataplane/transfer/socket.h"

namespace tidepool::transfer {
namespace {

using namespace std::chrono_literals;

class MessengerTest : public testing::TestWithParam<TransportPolicy> {
 protected:
  static constexpr uint64_t kSlice = 4096;
  static constexpr uint64_t kPages = 64;
  static constexpr uint64_t kLayers = 4;
  static constexpr uint64_t kPoolBytes = kLayers * kPages * kSlice;

  MessengerTest() { source_.FillRandomly(1); }

  Window WindowOf(std::vector<uint32_t> pages) {
    return {.region = destination_.region.id(),
            .page_ids = std::move(pages),
            .num_layers = kLayers,
            .layer_stride_bytes = kPages * kSlice,
            .slice_bytes = kSlice};
  }

  std::shared_ptr<const Capability> Grant(std::vector<uint32_t> pages,
                                          Duration life = kPatience) {
    return std::make_shared<Capability>(
        *destination_.messenger->Grant(WindowOf(std::move(pages)), In(life)));
  }

  PeerId Connect() {
    return *source_.messenger->Connect(destination_.peer_address(), GetParam());
  }

  Batch BatchOf(PeerId peer, std::shared_ptr<const Capability> capability) {
    return {.peer = peer,
            .capability = capability,
            .local_region = source_.region.id(),
            .slices = SlicesInOrder(*capability),
            .deadline = In(kPatience)};
  }

  BatchResult Run(Batch batch) {
    PendingBatch pending;
    auto submitted =
        source_.messenger->Submit(std::move(batch), pending.completion());
    if (!submitted.ok()) return {.status = submitted.status()};
    return pending.Wait();
  }

  std::span<const std::byte> Extent(const Capability& capability,
                                    uint32_t extent) {
    const auto pages = static_cast<uint32_t>(capability.window.page_ids.size());
    return destination_.memory().subspan(
        extent / pages * capability.window.layer_stride_bytes +
            capability.window.page_ids[extent % pages] * kSlice,
        kSlice);
  }

  void ExpectArrived(const Capability& capability,
                     const std::vector<Slice>& slices) {
    for (const Slice& slice : slices) {
      ASSERT_TRUE(std::ranges::equal(
          Extent(capability, slice.extent),
          source_.memory().subspan(slice.local_offset, kSlice)))
          << "extent " << slice.extent;
    }
  }

  TestNode destination_{kPoolBytes};
  TestNode source_{kPoolBytes};
};

INSTANTIATE_TEST_SUITE_P(Transports, MessengerTest,
                         testing::Values(TransportPolicy::kTcp,
                                         TransportPolicy::kShm),
                         [](const auto& param) {
                           return param.param == TransportPolicy::kTcp ? "Tcp"
                                                                       : "Shm";
                         });

TEST_P(MessengerTest, WritesEveryExtentToItsPlaceAndAgreesOnTheDigest) {
  const auto capability = Grant({7, 3, 60, 0});
  Batch batch = BatchOf(Connect(), capability);
  const std::vector<Slice> slices = batch.slices;
  const BatchResult result = Run(std::move(batch));
  ASSERT_TRUE(result.status.ok()) << result.status;
  ExpectArrived(*capability, slices);

  std::vector<uint64_t> checksums;
  for (const SliceResult& slice : result.slices)
    checksums.push_back(slice.checksum);
  const auto received = destination_.messenger->ReceivedDigest(capability->id);
  ASSERT_TRUE(received.ok());
  EXPECT_TRUE(received->complete);
  EXPECT_EQ(received->extents, 16u);
  EXPECT_EQ(received->digest, DigestOf(checksums));
}

TEST_P(MessengerTest, TouchesNothingOutsideOfTheWindow) {
  destination_.FillRandomly(2);
  const std::vector<std::byte> before(destination_.memory().begin(),
                                      destination_.memory().end());
  const auto capability = Grant({5, 9});
  ASSERT_TRUE(Run(BatchOf(Connect(), capability)).status.ok());
  for (uint32_t page = 0; page < kPages; ++page) {
    if (page == 5 || page == 9) continue;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const uint64_t offset = (layer * kPages + page) * kSlice;
      ASSERT_TRUE(std::equal(before.begin() + offset,
                             before.begin() + offset + kSlice,
                             destination_.memory().begin() + offset));
    }
  }
}

TEST_P(MessengerTest, SaysWhichTransportWasChosen) {
  const PeerId peer = Connect();
  ASSERT_TRUE(Run(BatchOf(peer, Grant({1}))).status.ok());
  const auto info = source_.messenger->Describe(peer);
  ASSERT_TRUE(info.ok());
  EXPECT_TRUE(info->connected);
  EXPECT_EQ(info->transport, GetParam() == TransportPolicy::kTcp
                                 ? Transport::kTcp
                                 : Transport::kShm);
  const MessengerStats stats = source_.messenger->stats();
  const bool tcp = GetParam() == TransportPolicy::kTcp;
  EXPECT_EQ(tcp ? stats.sent_bytes_tcp : stats.sent_bytes_shm,
            kLayers * kSlice);
  EXPECT_EQ(tcp ? stats.sent_bytes_shm : stats.sent_bytes_tcp, 0u);
}

TEST_P(MessengerTest, ReportsExtentsThatHaveNotArrivedYet) {
  const auto capability = Grant({1, 2});
  Batch batch = BatchOf(Connect(), capability);
  batch.slices.resize(3);
  ASSERT_TRUE(Run(batch).status.ok());
  const auto received = destination_.messenger->ReceivedDigest(capability->id);
  EXPECT_EQ(received->extents, 3u);
  EXPECT_FALSE(received->complete);
}

TEST_P(MessengerTest, WritesSlicesThatAreNotInOrderOfExtents) {
  const auto capability = Grant({1, 2, 3});
  Batch batch = BatchOf(Connect(), capability);
  std::ranges::reverse(batch.slices);
  const std::vector<Slice> slices = batch.slices;
  ASSERT_TRUE(Run(std::move(batch)).status.ok());
  ExpectArrived(*capability, slices);
}

TEST_P(MessengerTest, RefusesAForgedMac) {
  auto forged = std::make_shared<Capability>(*Grant({1}));
  forged->mac[0] ^= std::byte{1};
  const BatchResult result = Run(BatchOf(Connect(), forged));
  EXPECT_EQ(result.status.code(), Code::kPermissionDenied);
  EXPECT_EQ(destination_.messenger->stats().refused_slices, kLayers);
  EXPECT_EQ(destination_.messenger->ReceivedDigest(forged->id)->extents, 0u);
}

TEST_P(MessengerTest, RefusesAnotherIncarnationsCapability) {
  auto stale = std::make_shared<Capability>(*Grant({1}));
  ++stale->incarnation;
  EXPECT_EQ(Run(BatchOf(Connect(), stale)).status.code(),
            Code::kPermissionDenied);
}

TEST_P(MessengerTest, RefusesAnOldGeneration) {
  auto stale = std::make_shared<Capability>(*Grant({1}));
  --stale->generation;
  EXPECT_EQ(Run(BatchOf(Connect(), stale)).status.code(),
            Code::kPermissionDenied);
}

TEST_P(MessengerTest, RefusesAnExpiredCapability) {
  const auto expired = Grant({1}, 0s);
  EXPECT_EQ(Run(BatchOf(Connect(), expired)).status.code(),
            Code::kFailedPrecondition);
}

TEST_P(MessengerTest, RefusesARevokedCapability) {
  const auto capability = Grant({1});
  EXPECT_TRUE(RevokeAndWait(*destination_.messenger, capability->id).ok());
  EXPECT_EQ(Run(BatchOf(Connect(), capability)).status.code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(
      RevokeAndWait(*destination_.messenger, capability->id).status().code(),
      Code::kNotFound);
}

TEST_P(MessengerTest, RefusesOnlyTheExtentsThatDoNotExist) {
  const auto capability = Grant({1});
  Batch batch = BatchOf(Connect(), capability);
  batch.slices.push_back({.extent = kLayers, .local_offset = 0});
  batch.slices.push_back({.extent = ~uint32_t{0}, .local_offset = 0});
  const BatchResult result = Run(std::move(batch));
  EXPECT_EQ(result.status.code(), Code::kOutOfRange);
  ASSERT_EQ(result.slices.size(), kLayers + 2);
  for (size_t i = 0; i < kLayers; ++i)
    EXPECT_EQ(result.slices[i].code, Code::kOk);
  EXPECT_EQ(result.slices[kLayers].code, Code::kOutOfRange);
  EXPECT_TRUE(destination_.messenger->ReceivedDigest(capability->id)->complete);
}

TEST_P(MessengerTest, RefusesSlicesOfAnotherSize) {
  auto resized = std::make_shared<Capability>(*Grant({1}));
  resized->window.slice_bytes = kSlice / 2;
  EXPECT_EQ(Run(BatchOf(Connect(), resized)).status.code(), Code::kOutOfRange);
}

TEST_P(MessengerTest, RefusesToConnectToAnotherIncarnation) {
  PeerAddress address = destination_.peer_address();
  ++address.incarnation;
  const PeerId peer = *source_.messenger->Connect(address, GetParam());
  EXPECT_EQ(Run(BatchOf(peer, Grant({1}))).status.code(),
            Code::kFailedPrecondition);
}

TEST_P(MessengerTest, FailsWhenNobodyListens) {
  // A port that is taken, so that nobody else comes to listen there.
  const SocketAddress any = *ResolveAddress("127.0.0.1", 0);
  const UniqueFd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(taken.get(), any.raw(), any.length), 0);
  const PeerAddress address{.address = ToText(*BoundAddress(taken.get())),
                            .incarnation = 1};
  const PeerId peer = *source_.messenger->Connect(address, GetParam());
  EXPECT_EQ(Run(BatchOf(peer, Grant({1}))).status.code(), Code::kUnavailable);
  EXPECT_FALSE(source_.messenger->Describe(peer)->connected);
}

TEST_P(MessengerTest, ConnectIsIdempotent) {
  EXPECT_EQ(Connect(), Connect());
  EXPECT_EQ(source_.messenger->stats().peers, 1u);
}

TEST_P(MessengerTest, DisconnectForgetsThePeer) {
  const PeerId peer = Connect();
  source_.messenger->Disconnect(peer);
  EXPECT_EQ(source_.messenger->Describe(peer).status().code(), Code::kNotFound);
  EXPECT_EQ(Run(BatchOf(peer, Grant({1}))).status.code(), Code::kNotFound);
}

TEST_P(MessengerTest, RefusesSlicesOutsideOfTheLocalRegion) {
  Batch batch = BatchOf(Connect(), Grant({1}));
  batch.slices[0].local_offset = kPoolBytes - kSlice + 1;
  EXPECT_EQ(Run(batch).status.code(), Code::kInvalidArgument);
  batch.slices[0].local_offset = ~uint64_t{0};
  EXPECT_EQ(Run(batch).status.code(), Code::kInvalidArgument);
}

TEST_P(MessengerTest, SaysWhenItsQueueIsFull) {
  TestNode source(kPoolBytes, Patient({.max_pending_slices = 7}));
  Batch batch = BatchOf(
      *source.messenger->Connect(destination_.peer_address(), GetParam()),
      Grant({1, 2}));
  batch.local_region = source.region.id();
  const auto refused = source.messenger->Submit(batch, [](BatchResult) {});
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);

  batch.slices.resize(7);
  PendingBatch pending;
  ASSERT_TRUE(source.messenger->Submit(batch, pending.completion()).ok());
  EXPECT_TRUE(pending.Wait().status.ok());
  EXPECT_EQ(source.messenger->stats().pending_slices, 0u);
}

TEST_P(MessengerTest, EndsABatchWhoseDeadlineHasPassed) {
  Batch batch = BatchOf(Connect(), Grant({1}));
  batch.deadline = In(-1s);
  const BatchResult result = Run(std::move(batch));
  EXPECT_EQ(result.status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(source_.messenger->stats().pending_slices, 0u);
}

TEST_P(MessengerTest, WritesThousandsOfSmallSlices) {
  constexpr uint32_t kCount = 20000;
  constexpr uint64_t kSmall = 24;
  const Window window{.region = destination_.region.id(),
                      .page_ids =
                          [] {
                            std::vector<uint32_t> pages(kCount);
                            std::iota(pages.begin(), pages.end(), 0);
                            return pages;
                          }(),
                      .num_layers = 1,
                      .layer_stride_bytes = kPoolBytes,
                      .slice_bytes = kSmall};
  const auto capability = std::make_shared<Capability>(
      *destination_.messenger->Grant(window, In(kPatience)));
  const BatchResult result = Run(BatchOf(Connect(), capability));
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(std::equal(source_.memory().begin(),
                         source_.memory().begin() + kCount * kSmall,
                         destination_.memory().begin()));
}

TEST_P(MessengerTest, ServesConcurrentSubmitters) {
  constexpr uint32_t kThreads = 4, kPagesEach = kPages / kThreads;
  const PeerId peer = Connect();
  std::vector<std::shared_ptr<const Capability>> capabilities;
  for (uint32_t t = 0; t < kThreads; ++t) {
    std::vector<uint32_t> pages(kPagesEach);
    std::iota(pages.begin(), pages.end(), t * kPagesEach);
    capabilities.push_back(Grant(std::move(pages)));
  }
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // One batch per layer, as a prefill streams.
      const Batch whole = BatchOf(peer, capabilities[t]);
      std::vector<PendingBatch> pending(kLayers);
      for (size_t layer = 0; layer < kLayers; ++layer) {
        Batch batch = whole;
        batch.slices.assign(whole.slices.begin() + layer * kPagesEach,
                            whole.slices.begin() + (layer + 1) * kPagesEach);
        if (!source_.messenger->Submit(batch, pending[layer].completion()).ok())
          ++failures;
      }
      for (PendingBatch& batch : pending)
        if (!batch.Wait().status.ok()) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (const auto& capability : capabilities) {
    EXPECT_TRUE(
        destination_.messenger->ReceivedDigest(capability->id)->complete);
    ExpectArrived(*capability, SlicesInOrder(*capability));
  }
}

// Writers hammer the window while it is revoked; once revocation is done the
// owner uses the memory for something else, which must stay as it is.
TEST_P(MessengerTest, MemoryIsTheOwnersAgainOnceRevocationIsDone) {
  const PeerId peer = Connect();
  for (int round = 0; round < 20; ++round) {
    std::vector<uint32_t> pages(kPages);
    std::iota(pages.begin(), pages.end(), 0);
    const auto capability = Grant(std::move(pages));
    std::vector<PendingBatch> pending(8);
    for (PendingBatch& batch : pending)
      ASSERT_TRUE(source_.messenger
                      ->Submit(BatchOf(peer, capability), batch.completion())
                      .ok());
    const auto received =
        RevokeAndWait(*destination_.messenger, capability->id);
    ASSERT_TRUE(received.ok());
    std::ranges::fill(destination_.memory(), std::byte(round));
    for (PendingBatch& batch : pending) {
      const Status& status = batch.Wait().status;
      EXPECT_TRUE(status.ok() || status.code() == Code::kFailedPrecondition)
          << status;
    }
    ASSERT_TRUE(std::ranges::all_of(
        destination_.memory(),
        [round](std::byte byte) { return byte == std::byte(round); }));
  }
  EXPECT_EQ(destination_.messenger->stats().grants, 0u);
}

TEST_P(MessengerTest, CancelledBatchesEndAndLaterOnesStillWork) {
  const PeerId peer = Connect();
  std::vector<uint32_t> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0);
  const auto capability = Grant(std::move(pages));
  std::vector<PendingBatch> pending(8);
  for (PendingBatch& batch : pending) {
    const auto id = source_.messenger->Submit(BatchOf(peer, capability),
                                              batch.completion());
    ASSERT_TRUE(id.ok());
    source_.messenger->Cancel(*id);
  }
  for (PendingBatch& batch : pending) {
    const BatchResult& result = batch.Wait();
    for (const SliceResult& slice : result.slices)
      EXPECT_THAT(slice.code, testing::AnyOf(Code::kOk, Code::kCancelled));
  }
  const BatchResult result = Run(BatchOf(peer, capability));
  ASSERT_TRUE(result.status.ok()) << result.status;
  ExpectArrived(*capability, SlicesInOrder(*capability));
}

TEST_P(MessengerTest, UnregisteringMemoryEndsWhatUsesIt) {
  const PeerId peer = Connect();
  std::vector<uint32_t> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0);
  const auto capability = Grant(std::move(pages));
  std::vector<PendingBatch> pending(4);
  for (PendingBatch& batch : pending)
    ASSERT_TRUE(
        source_.messenger->Submit(BatchOf(peer, capability), batch.completion())
            .ok());
  source_.region = MemoryRegion();
  for (PendingBatch& batch : pending) EXPECT_TRUE(batch.done());
  destination_.region = MemoryRegion();
  EXPECT_EQ(destination_.messenger->stats().grants, 0u);
}

TEST_P(MessengerTest, PeerThatGoesAwayFailsWhatItDidNotAcknowledge) {
  auto destination = std::make_unique<TestNode>(kPoolBytes);
  const PeerId peer =
      *source_.messenger->Connect(destination->peer_address(), GetParam());
  Window window = WindowOf({1, 2, 3});
  window.region = destination->region.id();
  const auto capability = std::make_shared<Capability>(
      *destination->messenger->Grant(window, In(kPatience)));
  ASSERT_TRUE(Run(BatchOf(peer, capability)).status.ok());
  destination.reset();
  EXPECT_EQ(Run(BatchOf(peer, capability)).status.code(), Code::kUnavailable);
}

TEST_P(MessengerTest, DestroyingAMessengerEndsItsBatches) {
  auto source = std::make_unique<TestNode>(kPoolBytes);
  const PeerId peer =
      *source->messenger->Connect(destination_.peer_address(), GetParam());
  Batch batch = BatchOf(peer, Grant({1, 2, 3}));
  batch.local_region = source->region.id();
  PendingBatch pending;
  ASSERT_TRUE(source->messenger->Submit(batch, pending.completion()).ok());
  source.reset();
  EXPECT_TRUE(pending.done());
}

class NegotiationTest : public testing::Test {
 protected:
  static BatchResult Send(TestNode& source, MemoryRegion& region,
                          TestNode& destination, TransportPolicy policy,
                          PeerId& peer) {
    const Window window{.region = destination.region.id(),
                        .page_ids = {0},
                        .num_layers = 1,
                        .layer_stride_bytes = 64,
                        .slice_bytes = 64};
    const auto capability = std::make_shared<Capability>(
        *destination.messenger->Grant(window, In(kPatience)));
    peer = *source.messenger->Connect(destination.peer_address(), policy);
    PendingBatch pending;
    CHECK(source.messenger
              ->Submit({.peer = peer,
                        .capability = capability,
                        .local_region = region.id(),
                        .slices = {{.extent = 0, .local_offset = 0}},
                        .deadline = In(kPatience)},
                       pending.completion())
              .ok());
    return pending.Wait();
  }
};

TEST_F(NegotiationTest, AutoChoosesSharedMemoryOnTheSameHost) {
  TestNode source(4096), destination(4096);
  PeerId peer;
  EXPECT_TRUE(
      Send(source, source.region, destination, TransportPolicy::kAuto, peer)
          .status.ok());
  EXPECT_EQ(source.messenger->Describe(peer)->transport, Transport::kShm);
}

TEST_F(NegotiationTest, AutoSaysWhyItCannotShareMemory) {
  TestNode source(4096), destination(4096);
  source.region = *source.messenger->RegisterMemory(source.memory());
  PeerId peer;
  EXPECT_TRUE(
      Send(source, source.region, destination, TransportPolicy::kAuto, peer)
          .status.ok());
  const auto info = source.messenger->Describe(peer);
  EXPECT_EQ(info->transport, Transport::kTcp);
  EXPECT_THAT(info->reason, testing::HasSubstr("no memory registered"));
}

TEST_F(NegotiationTest, ShmNeverFallsBack) {
  TestNode source(4096), destination(4096);
  source.region = *source.messenger->RegisterMemory(source.memory());
  PeerId peer;
  EXPECT_EQ(
      Send(source, source.region, destination, TransportPolicy::kShm, peer)
          .status.code(),
      Code::kFailedPrecondition);
  EXPECT_EQ(destination.messenger->stats().received_bytes_tcp, 0u);
}

TEST_F(NegotiationTest, MemoryRegisteredLaterIsSharedToo) {
  TestNode source(4096), destination(4096);
  PeerId peer;
  ASSERT_TRUE(
      Send(source, source.region, destination, TransportPolicy::kShm, peer)
          .status.ok());
  SharedMemory later = *SharedMemory::Create("later", 4096);
  MemoryRegion region =
      *source.messenger->RegisterMemory(later.memory(), later.fd());
  EXPECT_TRUE(Send(source, region, destination, TransportPolicy::kShm, peer)
                  .status.ok());
  MemoryRegion unshared = *source.messenger->RegisterMemory(later.memory());
  EXPECT_EQ(Send(source, unshared, destination, TransportPolicy::kShm, peer)
                .status.code(),
            Code::kFailedPrecondition);
}

TEST(MessengerCreateTest, SaysThatThePortIsInUse) {
  TestNode node(4096);
  const std::string address = node.messenger->address();
  MessengerOptions options;
  options.port =
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  const auto second = CreateSocketMessenger(options);
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(MessageOf(second.status()),
              testing::HasSubstr(std::to_string(options.port)));
}

TEST(MessengerCreateTest, RefusesAddressesThatAreNone) {
  TestNode node(4096);
  for (const char* address :
       {"", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:0", "127.0.0.1:65536",
        "127.0.0.1:x", "localhost:80", "[::1:80", "::1]:80"})
    EXPECT_EQ(
        node.messenger->Connect({.address = address}, TransportPolicy::kTcp)
            .status()
            .code(),
        Code::kInvalidArgument)
        << address;
}

TEST(MessengerCreateTest, TellsItsAddressInDigits) {
  for (const char* host : {"localhost", "127.0.0.1", "[::1]"}) {
    const auto messenger = CreateSocketMessenger({.host = host});
    if (!messenger.ok() && host[0] == '[') continue;  // a host without IPv6
    ASSERT_TRUE(messenger.ok()) << messenger.status();
    EXPECT_TRUE(ParseAddress((*messenger)->address()).ok())
        << (*messenger)->address();
  }
}

TEST(TransportPolicyTest, NamesAreExact) {
  EXPECT_EQ(*ParseTransportPolicy("auto"), TransportPolicy::kAuto);
  EXPECT_EQ(*ParseTransportPolicy("shm"), TransportPolicy::kShm);
  EXPECT_EQ(ParseTransportPolicy("TCP").status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace tidepool::transfer
