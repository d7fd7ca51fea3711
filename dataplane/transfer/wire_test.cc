#include "dataplane/transfer/wire.h"

#include <gtest/gtest.h>

#include "dataplane/transfer/grant_table.h"

namespace tidepool::transfer::internal {
namespace {

using namespace std::chrono_literals;

std::span<const std::byte, kHeaderBytes> HeaderOf(const Bytes& frame) {
  return std::span(frame).first<kHeaderBytes>();
}
std::span<const std::byte> HeadOf(const Bytes& frame) {
  return std::span(frame).subspan(kHeaderBytes);
}

WriteHead SomeWrite() {
  WriteHead write{.batch = 1,
                  .first_slice = 2,
                  .capability = 3,
                  .incarnation = 4,
                  .generation = 5,
                  .slice_bytes = 4096,
                  .source_region = 6,
                  .slices = {{1, 10, 100}, {7, 20, 200}}};
  write.mac.fill(std::byte{0xab});
  return write;
}

TEST(WireTest, WritesAndCopiesSurviveTheRoundTrip) {
  for (const bool copy : {false, true}) {
    const WriteHead write = SomeWrite();
    const Bytes frame = copy ? EncodeCopy(write) : EncodeWrite(write);
    const auto header = ParseHeader(HeaderOf(frame));
    ASSERT_TRUE(header.ok());
    EXPECT_EQ(header->payload_bytes, copy ? 0u : 8192u);
    const auto parsed = ParseWrite(*header, HeadOf(frame));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->batch, 1u);
    EXPECT_EQ(parsed->first_slice, 2u);
    EXPECT_EQ(parsed->mac, write.mac);
    ASSERT_EQ(parsed->slices.size(), 2u);
    EXPECT_EQ(parsed->slices[1].extent, 7u);
    EXPECT_EQ(parsed->slices[1].checksum, 20u);
    EXPECT_EQ(parsed->slices[1].source_offset, copy ? 200u : 0u);
  }
}

TEST(WireTest, EveryTruncationAndExtensionOfAWriteIsRefused) {
  const Bytes frame = EncodeWrite(SomeWrite());
  const FrameHeader header = *ParseHeader(HeaderOf(frame));
  for (size_t size = 0; size < HeadOf(frame).size(); ++size)
    EXPECT_FALSE(ParseWrite(header, HeadOf(frame).first(size)).ok()) << size;
  Bytes longer = frame;
  longer.push_back({});
  EXPECT_FALSE(ParseWrite(header, HeadOf(longer)).ok());
}

TEST(WireTest, RefusesExtentsThatDoNotIncrease) {
  for (const uint32_t second : {1u, 0u}) {
    WriteHead write = SomeWrite();
    write.slices[1].extent = second;
    const Bytes frame = EncodeWrite(write);
    EXPECT_FALSE(ParseWrite(*ParseHeader(HeaderOf(frame)), HeadOf(frame)).ok());
  }
}

TEST(WireTest, RefusesAPayloadThatIsNotTheSlices) {
  const Bytes frame = EncodeWrite(SomeWrite());
  FrameHeader header = *ParseHeader(HeaderOf(frame));
  ++header.payload_bytes;
  EXPECT_FALSE(ParseWrite(header, HeadOf(frame)).ok());
}

TEST(WireTest, RefusesSlicesOfImpossibleSizes) {
  for (const uint64_t bytes : {uint64_t{0}, kMaxSliceBytes + 1, ~uint64_t{0}}) {
    WriteHead write = SomeWrite();
    write.slice_bytes = bytes;
    const Bytes frame = EncodeCopy(write);
    EXPECT_FALSE(ParseWrite(*ParseHeader(HeaderOf(frame)), HeadOf(frame)).ok())
        << bytes;
  }
}

TEST(WireTest, RefusesAcknowledgementsThatSayNothing) {
  EXPECT_TRUE(ParseAck(HeadOf(Encode(Ack{.codes = {Code::kOk}}))).ok());
  for (const Code code : {Code::kUnknown, static_cast<Code>(17)})
    EXPECT_FALSE(ParseAck(HeadOf(Encode(Ack{.codes = {code}}))).ok());
}

TEST(WireTest, LongTextsAreCut) {
  const Bytes frame = Encode(
      Goodbye{.code = Code::kInternal, .message = std::string(100000, 'x')});
  EXPECT_LT(frame.size(), 2000u);
  EXPECT_TRUE(ParseGoodbye(HeadOf(frame)).ok());
}

TEST(GrantTableTest, RefusesWindowsThatLeaveTheRegionOrOverlap) {
  std::vector<std::byte> memory(4096);
  GrantTable grants(1, 10, 1000);
  const Window good{.region = 1,
                    .page_ids = {0, 3},
                    .num_layers = 2,
                    .layer_stride_bytes = 2048,
                    .slice_bytes = 512};
  ASSERT_TRUE(grants.Add(memory, good, TimePoint::max()).ok());
  const auto refuses = [&](auto change) {
    Window bad = good;
    change(bad);
    return grants.Add(memory, bad, TimePoint::max()).status().code() ==
           Code::kInvalidArgument;
  };
  EXPECT_TRUE(refuses([](Window& w) { w.page_ids.clear(); }));
  EXPECT_TRUE(refuses([](Window& w) { w.num_layers = 0; }));
  EXPECT_TRUE(refuses([](Window& w) { w.slice_bytes = 0; }));
  EXPECT_TRUE(refuses([](Window& w) { w.page_ids = {3, 3}; }));
  EXPECT_TRUE(refuses([](Window& w) { w.page_ids = {4}; }));
  EXPECT_TRUE(refuses([](Window& w) { w.page_ids = {~uint32_t{0}}; }));
  EXPECT_TRUE(refuses([](Window& w) { w.num_layers = 3; }));
  EXPECT_TRUE(refuses([](Window& w) { w.num_layers = ~uint32_t{0}; }));
  EXPECT_TRUE(refuses([](Window& w) { w.layer_stride_bytes = 2047; }));
  EXPECT_TRUE(refuses([](Window& w) { w.layer_stride_bytes = ~uint64_t{0}; }));
}

TEST(GrantTableTest, SaysWhenThereAreTooMany) {
  std::vector<std::byte> memory(512);
  GrantTable grants(1, 1, 1000);
  const Window window{
      .region = 1, .page_ids = {0}, .num_layers = 1, .slice_bytes = 512};
  const auto first = grants.Add(memory, window, TimePoint::max());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(grants.Add(memory, window, TimePoint::max()).status().code(),
            Code::kResourceExhausted);
  EXPECT_TRUE(grants.Remove(first->id).ok());
  const auto second = grants.Add(memory, window, TimePoint::max());
  ASSERT_TRUE(second.ok());
  EXPECT_GT(second->generation, first->generation);
}

TEST(CapabilityTest, EveryFieldIsSigned) {
  const CapabilityMint mint;
  const Capability base{
      .id = 1, .incarnation = 2, .generation = 3, .window = {.page_ids = {4}}};
  const Mac mac = mint.Sign(base);
  EXPECT_TRUE(SameMac(mac, mint.Sign(base)));
  EXPECT_FALSE(SameMac(mac, CapabilityMint().Sign(base)));
  const auto differs = [&](auto change) {
    Capability other = base;
    change(other);
    return !SameMac(mac, mint.Sign(other));
  };
  EXPECT_TRUE(differs([](Capability& c) { c.id = 9; }));
  EXPECT_TRUE(differs([](Capability& c) { c.incarnation = 9; }));
  EXPECT_TRUE(differs([](Capability& c) { c.generation = 9; }));
  EXPECT_TRUE(differs([](Capability& c) { c.window.region = 9; }));
  EXPECT_TRUE(differs([](Capability& c) { c.window.page_ids = {5}; }));
  EXPECT_TRUE(differs([](Capability& c) { c.window.page_ids = {4, 4}; }));
  EXPECT_TRUE(differs([](Capability& c) { c.window.num_layers = 9; }));
  EXPECT_TRUE(differs([](Capability& c) { c.window.layer_stride_bytes = 9; }));
  EXPECT_TRUE(differs([](Capability& c) { c.window.slice_bytes = 9; }));
}

}  // namespace
}  // namespace tidepool::transfer::internal
