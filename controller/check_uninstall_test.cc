#include "controller/check_uninstall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/kube/resource_types.h"
#include "tests/fakes/api_server.h"
#include "tests/fakes/faulty_client.h"

namespace tidepool::controller {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

void Create(fakes::ApiServer& server, const kube::ResourceType& type,
            const std::string& space, const std::string& name) {
  ASSERT_TRUE(
      server
          .Create(type, space,
                  {{"apiVersion", type.ApiVersion()},
                   {"kind", type.kind},
                   {"metadata", {{"name", name}, {"namespace", space}}}})
          .ok());
}

TEST(RemainingResourcesTest, NamesAllKindsInAllNamespaces) {
  fakes::ApiServer server;
  EXPECT_THAT(*RemainingResources(server, ""), IsEmpty());
  Create(server, kube::kKVCachePool, "a", "demo");
  Create(server, kube::kPrefillPool, "a", "demo-prefill");
  Create(server, kube::kDecodePool, "b", "other");
  EXPECT_THAT(
      *RemainingResources(server, ""),
      UnorderedElementsAre("KVCachePool a/demo", "PrefillPool a/demo-prefill",
                           "DecodePool b/other"));
  EXPECT_THAT(*RemainingResources(server, "b"),
              UnorderedElementsAre("DecodePool b/other"));
}

TEST(RefusalTest, NamesWhatIsLeftAndBothWaysOut) {
  EXPECT_THAT(Refusal({"KVCachePool a/demo", "DecodePool b/other"}),
              AllOf(HasSubstr("\nKVCachePool a/demo\nDecodePool b/other\n"),
                    HasSubstr("run `helm uninstall` again"),
                    HasSubstr("helm rollback NAME REVISION")));
}

TEST(RemainingResourcesTest, DoesNotTakeSilenceForNothing) {
  fakes::ApiServer server;
  fakes::FaultyClient client(server, 1);
  client.Cut();
  EXPECT_FALSE(RemainingResources(client, "").ok());
}

}  // namespace
}  // namespace tidepool::controller
