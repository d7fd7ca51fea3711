#include "dataplane/prefix/kv_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidepool::prefix {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

StoredBlock Block(uint8_t name) {
  StoredBlock block;
  block.key.bytes[0] = name;
  return block;
}

TEST(KvEventLogTest, ReadsOnFromWhereTheReaderIs) {
  KvEventLog log(10);
  std::vector<KvEvent> events;
  EXPECT_TRUE(log.Read(1, 100, events));
  EXPECT_THAT(events, IsEmpty());
  for (uint8_t i = 1; i <= 5; ++i) {
    log.Append(KvEvent::Kind::kStored, Block(i));
  }
  EXPECT_EQ(log.next_sequence(), 6);
  EXPECT_TRUE(log.Read(2, 3, events));
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].sequence, 2);
  EXPECT_EQ(events[2].block, Block(4));
  EXPECT_TRUE(log.Read(5, 3, events));
  EXPECT_THAT(events, SizeIs(4));
  EXPECT_TRUE(log.Read(6, 3, events));
  EXPECT_THAT(events, SizeIs(4));
}

TEST(KvEventLogTest, AReaderThatFellBehindIsTold) {
  KvEventLog log(3);
  for (uint8_t i = 1; i <= 8; ++i) {
    log.Append(KvEvent::Kind::kRemoved, Block(i));
  }
  std::vector<KvEvent> events;
  EXPECT_FALSE(log.Read(5, 100, events));
  EXPECT_THAT(events, IsEmpty());
  EXPECT_TRUE(log.Read(6, 100, events));
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].block, Block(6));
}

TEST(KvEventLogTest, AReaderFromTheFutureIsTold) {
  KvEventLog log(3);  // its owner has started again
  std::vector<KvEvent> events;
  EXPECT_FALSE(log.Read(2, 100, events));
  EXPECT_FALSE(log.Read(0, 100, events));
}

}  // namespace
}  // namespace tidepool::prefix
