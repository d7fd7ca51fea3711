#include "dataplane/rpc/role_identity.h"

#include <gtest/gtest.h>

namespace tidepool::rpc {
namespace {

TEST(RoleIdentityTest, IsReadAsItWasWritten) {
  for (const Component component :
       {Component::kConductor, Component::kWorker, Component::kController}) {
    const RoleIdentity identity{
        .space = "team-a", .pool = "llama-3.1", .component = component};
    const auto parsed = RoleIdentity::Parse(identity.ToUri());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, identity);
  }
}

TEST(RoleIdentityTest, LooksAsDocumented) {
  EXPECT_EQ((RoleIdentity{.space = "default",
                          .pool = "demo",
                          .component = Component::kConductor})
                .ToUri(),
            "spiffe://tidepool/default/demo/conductor");
}

TEST(RoleIdentityTest, RefusesWhatIsNoRole) {
  for (const char* uri : {
           "",
           "spiffe://tidepool/",
           "spiffe://tidepool/a/b",
           "spiffe://tidepool/a/b/",
           "spiffe://tidepool/a/b/gateway",
           "spiffe://tidepool/a/b/worker/",
           "spiffe://tidepool/a/b/c/worker",
           "spiffe://tidepool//b/worker",
           "spiffe://tidepool/a//worker",
           "spiffe://tidepool/A/b/worker",
           "spiffe://tidepool/a,b/c/worker",
           "spiffe://elsewhere/a/b/worker",
           "https://tidepool/a/b/worker",
       }) {
    const auto parsed = RoleIdentity::Parse(uri);
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument) << uri;
  }
}

TEST(RoleIdentityTest, RefusesNamesThatCouldSayMore) {
  EXPECT_TRUE(Validate({.space = "a", .pool = "b"}).ok());
  EXPECT_FALSE(Validate({.space = "", .pool = "b"}).ok());
  EXPECT_FALSE(Validate({.space = "a", .pool = "b/worker"}).ok());
  EXPECT_FALSE(Validate({.space = "a", .pool = "b,DNS:c"}).ok());
  EXPECT_FALSE(Validate({.space = std::string(254, 'a'), .pool = "b"}).ok());
}

}  // namespace
}  // namespace tidepool::rpc
