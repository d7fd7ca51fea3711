#include "controller/check_install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "tests/fakes/api_server.h"
#include "tests/fakes/faulty_client.h"

namespace tidepool::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckInstallTest : public ::testing::Test {
 protected:
  void Write(const kube::Json& spec) {
    kube::Json lease = kube::Skeleton(kube::kLease, options_.lease);
    lease["spec"] = spec;
    ASSERT_TRUE(server_.Apply(kube::kLease, options_.lease, lease).ok());
  }
  void Renew() {
    Write({{"holderIdentity", "controller-0_1"},
           {"leaseTransitions", ++writes_}});
  }
  void CreateFleet(const std::string& name, const kube::Json& conditions) {
    ASSERT_TRUE(server_
                    .Create(kube::kKVCachePool, "models",
                            {{"metadata", {{"name", name}}}})
                    .ok());
    ASSERT_TRUE(server_
                    .Patch(kube::kKVCachePool, {"models", name},
                           kube::PatchType::kMerge,
                           {{"status", {{"conditions", conditions}}}}, "status")
                    .ok());
  }

  fakes::ApiServer server_;
  CheckInstallOptions options_{.lease = {"system", "tidepool-controller"},
                               .pause = [this] { Renew(); }};
  int writes_ = 0;
};

TEST_F(CheckInstallTest, NamesTheLeaderAndHowFleetsAre) {
  CreateFleet("asleep", kube::Json::array());
  CreateFleet("demo", {{{"type", "Degraded"}, {"status", "False"}},
                       {{"type", "Ready"},
                        {"status", "False"},
                        {"reason", "NoDecodePool"},
                        {"message", "no DecodePool refers to demo"}}});
  const auto lines = CheckInstall(server_, options_);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(
      *lines,
      ElementsAre("controller-0_1 leads",
                  "KVCachePool models/asleep: nobody has looked at it yet",
                  "KVCachePool models/demo: Ready is False: NoDecodePool: no "
                  "DecodePool refers to demo"));
}

TEST_F(CheckInstallTest, ALeaseThatNobodyRenewsIsNoLeader) {
  Renew();
  options_.pause = [] {};
  EXPECT_THAT(CheckInstall(server_, options_).status().ToString(),
              HasSubstr("nobody renews the Lease system/tidepool-controller"));
}

TEST_F(CheckInstallTest, ALeaseThatIsReleasedIsNoLeader) {
  options_.pause = [this] { Write({{"leaseTransitions", ++writes_}}); };
  EXPECT_EQ(CheckInstall(server_, options_).status().code(),
            Code::kFailedPrecondition);
}

TEST_F(CheckInstallTest, DoesNotTakeSilenceForConsent) {
  fakes::FaultyClient client(server_, 1);
  client.Cut();
  EXPECT_EQ(CheckInstall(client, options_).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace tidepool::controller
