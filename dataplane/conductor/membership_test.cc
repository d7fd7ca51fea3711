#include "dataplane/conductor/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tidepool::conductor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MembershipTest : public ::testing::Test {
 protected:
  Membership::Change Answer(size_t source, std::vector<std::string> addresses) {
    return members_.OnAnswer(source, std::move(addresses),
                             [this](std::string_view address) {
                               return sessions_.contains(std::string(address));
                             });
  }

  Membership members_{4};
  std::set<std::string> sessions_;
};

TEST_F(MembershipTest, NewAddressesAreAddedOnce) {
  EXPECT_THAT(Answer(0, {"b:1", "a:1", "b:1"}).added,
              ElementsAre("a:1", "b:1"));
  EXPECT_THAT(Answer(0, {"b:1", "a:1", "c:1"}).added, ElementsAre("c:1"));
  EXPECT_EQ(members_.size(), 3u);
}

TEST_F(MembershipTest, AnAbsentOneGoesAfterThreeAnswersWithoutASession) {
  Answer(0, {"a:1", "b:1"});
  EXPECT_THAT(Answer(0, {"b:1"}).removed, IsEmpty());
  EXPECT_THAT(Answer(0, {"b:1"}).removed, IsEmpty());
  EXPECT_THAT(Answer(0, {"a:1", "b:1"}).removed, IsEmpty());  // seen again
  EXPECT_THAT(Answer(0, {"b:1"}).removed, IsEmpty());
  EXPECT_THAT(Answer(0, {"b:1"}).removed, IsEmpty());
  EXPECT_THAT(Answer(0, {"b:1"}).removed, ElementsAre("a:1"));
  EXPECT_THAT(Answer(0, {"a:1", "b:1"}).added, ElementsAre("a:1"));
}

TEST_F(MembershipTest, OneThatStillServesStays) {
  Answer(0, {"a:1"});
  sessions_ = {"a:1"};
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Answer(0, {}).removed, IsEmpty());
  sessions_.clear();
  EXPECT_THAT(Answer(0, {}).removed, ElementsAre("a:1"));
  EXPECT_EQ(members_.size(), 0u);
}

TEST_F(MembershipTest, AnAddressThatMovesToAnotherNameIsNotLost) {
  Answer(0, {"a:1"});
  EXPECT_THAT(Answer(1, {"a:1"}).added, IsEmpty());
  for (int i = 0; i < 5; ++i) EXPECT_THAT(Answer(0, {}).removed, IsEmpty());
  EXPECT_EQ(members_.size(), 1u);
}

TEST_F(MembershipTest, TheNumberIsBoundedAndTheSameOnesAreTaken) {
  EXPECT_THAT(Answer(0, {"e:1", "d:1", "c:1", "b:1", "a:1"}).added,
              ElementsAre("a:1", "b:1", "c:1", "d:1"));
  EXPECT_THAT(Answer(0, {"a:1", "e:1", "d:1", "c:1", "b:1"}).added, IsEmpty());
}

TEST_F(MembershipTest, WhatWasNotTakenIsOfferedAgain) {
  Answer(0, {"a:1"});
  members_.Forget("a:1");
  EXPECT_THAT(Answer(0, {"a:1"}).added, ElementsAre("a:1"));
}

}  // namespace
}  // namespace tidepool::conductor
