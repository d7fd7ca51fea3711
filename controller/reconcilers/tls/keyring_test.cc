#include "controller/reconcilers/tls/keyring.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "controller/reconcilers/tls/secrets.h"
#include "dataplane/base/clock.h"
#include "tests/fakes/api_server.h"
#include "tidepool/conductor/v1/fleet.grpc.pb.h"

namespace tidepool::reconcilers {
namespace {

using testing::HasSubstr;

class KeyringTest : public testing::Test {
 protected:
  void SetUp() override {
    Json owner = kube::Skeleton(kube::kKVCachePool, kFamily);
    const auto stored = server_.Create(kube::kKVCachePool, "models", owner);
    ASSERT_TRUE(stored.ok()) << stored.status();
    scope_ = {.space = "models",
              .pool = "demo",
              .owner = {.type = &kube::kKVCachePool,
                        .name = "demo",
                        .uid = (*stored)["metadata"]["uid"]}};
  }

  // Data of a Secret; null if it is not there.
  Json Data(const std::string& name) {
    const auto secret =
        server_.Get(kube::kSecret, {.space = "models", .name = name});
    return secret.ok() ? (*secret)["data"] : Json();
  }
  Status Ensure(bool is_missed = false) {
    return keyring_.Ensure(scope_, is_missed).status();
  }
  void Pass(int64_t seconds) {
    now_ += seconds;
    clock_.Advance(std::chrono::seconds(seconds));
  }

  const kube::ObjectKey kFamily{.space = "models", .name = "demo"};
  ManualClock clock_;
  // Handshakes go by the machine's clock.
  int64_t now_ = static_cast<int64_t>(UnixSeconds());
  fakes::ApiServer server_;
  FamilyScope scope_;
  Keyring keyring_{server_, clock_,
                   [this] { return static_cast<double>(now_); }};
};

TEST_F(KeyringTest, MakesASecretForEachComponentAndOneForNobody) {
  EXPECT_FALSE(keyring_.SecurityOf(kFamily).has_value());
  ASSERT_TRUE(Ensure().ok());
  EXPECT_TRUE(tls::AuthoritiesFromData(Data("demo-tls-ca")).has_value());
  EXPECT_TRUE(tls::LeafFromData(Data("demo-conductor-tls")).has_value());
  EXPECT_TRUE(tls::LeafFromData(Data("demo-worker-tls")).has_value());
  ASSERT_TRUE(keyring_.SecurityOf(kFamily).has_value());
  EXPECT_TRUE(keyring_.SecurityOf(kFamily)->IsTls());
}

TEST_F(KeyringTest, TellsWhenTheFirstCertificateEnds) {
  EXPECT_FALSE(keyring_.FirstExpiry().has_value());
  keyring_.UsePlainText({.space = "models", .name = "plain"});
  EXPECT_FALSE(keyring_.FirstExpiry().has_value());
  ASSERT_TRUE(Ensure().ok());
  EXPECT_EQ(keyring_.FirstExpiry(), Seconds(tls::kLeafSeconds));
  Pass(tls::kLeafSeconds + 5);
  EXPECT_EQ(keyring_.FirstExpiry(), Seconds(-5)) << "nobody renewed it";
  ASSERT_TRUE(Ensure().ok());
  EXPECT_EQ(keyring_.FirstExpiry(), Seconds(tls::kLeafSeconds));
  keyring_.Forget(kFamily);
  EXPECT_FALSE(keyring_.FirstExpiry().has_value());
}

TEST_F(KeyringTest, WritesNothingWhenNothingIsDue) {
  ASSERT_TRUE(Ensure().ok());
  const uint64_t version = server_.version();
  for (int i = 0; i < 48; ++i) {
    Pass(3600);
    ASSERT_TRUE(Ensure(/*is_missed=*/true).ok());
  }
  Keyring restarted(server_, clock_,
                    [this] { return static_cast<double>(now_); });
  EXPECT_TRUE(restarted.Ensure(scope_, false).ok());
  EXPECT_EQ(server_.version(), version);
}

TEST_F(KeyringTest, RenewsWhatIsDue) {
  ASSERT_TRUE(Ensure().ok());
  const Json authority = Data("demo-tls-ca");
  const Json before = Data("demo-worker-tls");
  Pass(tls::kLeafRenewalSeconds);
  ASSERT_TRUE(Ensure().ok());
  EXPECT_EQ(Data("demo-tls-ca"), authority);
  EXPECT_NE(Data("demo-worker-tls"), before);
}

TEST_F(KeyringTest, ADeletedSecretIsMadeAgainWhenItIsMissed) {
  ASSERT_TRUE(Ensure().ok());
  ASSERT_TRUE(
      server_
          .Delete(kube::kSecret, {.space = "models", .name = "demo-worker-tls"})
          .ok());
  ASSERT_TRUE(Ensure(/*is_missed=*/true).ok());
  EXPECT_TRUE(Data("demo-worker-tls").is_null());  // just looked
  Pass(30);
  ASSERT_TRUE(Ensure(/*is_missed=*/true).ok());
  EXPECT_FALSE(Data("demo-worker-tls").is_null());
}

// Nothing else may happen that would make anybody look.
TEST_F(KeyringTest, WhoMissesSomethingIsToldToComeAgainSoon) {
  EXPECT_GE(keyring_.Ensure(scope_, false).value(), std::chrono::hours(1));
  EXPECT_LE(keyring_.Ensure(scope_, true).value(), std::chrono::seconds(30));
}

TEST_F(KeyringTest, ADeletedAuthorityIsReplacedWithAllItSigned) {
  ASSERT_TRUE(Ensure().ok());
  const Json before = Data("demo-conductor-tls");
  ASSERT_TRUE(
      server_.Delete(kube::kSecret, {.space = "models", .name = "demo-tls-ca"})
          .ok());
  Pass(3600);
  ASSERT_TRUE(Ensure().ok());
  EXPECT_NE(Data("demo-conductor-tls"), before);
  EXPECT_EQ(Data("demo-conductor-tls")["ca.crt"],
            Data("demo-tls-ca")["ca.crt"]);
}

TEST_F(KeyringTest, TheOverlapOfTwoAuthoritiesIsWritten) {
  ASSERT_TRUE(Ensure().ok());
  // In reach of its renewal without ten years of hourly looks.
  Pass(tls::kAuthoritySeconds - tls::kAuthorityRenewalSeconds);
  ASSERT_TRUE(Ensure().ok());
  EXPECT_TRUE(Data("demo-tls-ca").contains("next.key"));
  Pass(tls::kOverlapSeconds);
  ASSERT_TRUE(Ensure().ok());
  EXPECT_FALSE(Data("demo-tls-ca").contains("next.key"));
  EXPECT_TRUE(Data("demo-tls-ca").contains("retired.crt"));
  Pass(tls::kOverlapSeconds);
  ASSERT_TRUE(Ensure().ok());
  EXPECT_FALSE(Data("demo-tls-ca").contains("retired.crt"));
  EXPECT_EQ(Data("demo-worker-tls")["ca.crt"], Data("demo-tls-ca")["ca.crt"]);
}

TEST_F(KeyringTest, SecretsOfOthersAreLeftAlone) {
  Json secret = kube::Skeleton(kube::kSecret,
                               {.space = "models", .name = "demo-worker-tls"});
  secret["data"] = {{"tls.crt", "aGVsbG8="}};
  ASSERT_TRUE(server_.Create(kube::kSecret, "models", secret).ok());
  const Status status = Ensure();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), HasSubstr("models/demo-worker-tls"));
  EXPECT_EQ(Data("demo-worker-tls"), secret["data"]);
  EXPECT_TRUE(Data("demo-tls-ca").is_null());
}

TEST_F(KeyringTest, TheFleetsPodsLetTheControllerIn) {
  ASSERT_TRUE(Ensure().ok());
  const auto leaf = tls::LeafFromData(Data("demo-conductor-tls"));
  ASSERT_TRUE(leaf.has_value());
  const auto theirs = rpc::Security::Of(*leaf);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  conductor::v1::FleetService::Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(
      "127.0.0.1:0", theirs->ServerCredentials({rpc::Component::kController}),
      &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto stub = conductor::v1::FleetService::NewStub(
      keyring_.SecurityOf(kFamily)->OpenChannel(
          fmt::format("127.0.0.1:{}", port), rpc::Component::kConductor, {}));
  grpc::ClientContext context;
  const auto reader = stub->WatchFleet(&context, {});
  // The call arrives, which is all that this service can do with it.
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(KeyringTest, AFleetWithoutTlsIsCalledInPlainText) {
  keyring_.UsePlainText(kFamily);
  ASSERT_TRUE(keyring_.SecurityOf(kFamily).has_value());
  EXPECT_FALSE(keyring_.SecurityOf(kFamily)->IsTls());
  keyring_.Forget(kFamily);
  EXPECT_FALSE(keyring_.SecurityOf(kFamily).has_value());
}

}  // namespace
}  // namespace tidepool::reconcilers
