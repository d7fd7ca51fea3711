#include "dataplane/worker/worker_shell_inbox.h"

#include <gtest/gtest.h>

namespace tidepool::worker {
namespace {

void Nothing(TimePoint) {}

TEST(InboxTest, BoundsWhatComesFromOutside) {
  Inbox inbox(2, 100);
  EXPECT_TRUE(inbox.TryPost(1, Nothing));
  EXPECT_TRUE(inbox.TryPost(1, Nothing));
  EXPECT_FALSE(inbox.TryPost(1, Nothing));
  inbox.Post(Nothing);  // what the core asked for itself
  EXPECT_EQ(inbox.Take(TimePoint::max()).size(), 3u);
  EXPECT_TRUE(inbox.TryPost(1, Nothing));
}

TEST(InboxTest, BoundsWhatItHoldsTogether) {
  Inbox inbox(8, 100);
  EXPECT_FALSE(inbox.TryPost(101, Nothing));
  EXPECT_TRUE(inbox.TryPost(60, Nothing));
  EXPECT_FALSE(inbox.TryPost(41, Nothing));
  EXPECT_TRUE(inbox.TryPost(40, Nothing));
  EXPECT_EQ(inbox.Take(TimePoint::max()).size(), 2u);
  EXPECT_TRUE(inbox.TryPost(100, Nothing));
}

TEST(InboxTest, TakesNothingOnceItIsClosed) {
  Inbox inbox(8, 100);
  EXPECT_TRUE(inbox.TryPost(1, Nothing));
  inbox.Close();
  EXPECT_FALSE(inbox.TryPost(1, Nothing));
  inbox.Post(Nothing);
  EXPECT_TRUE(inbox.Take(TimePoint::max()).empty());
}

}  // namespace
}  // namespace tidepool::worker
