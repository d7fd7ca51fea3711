#include "controller/reconcilers/tls/secrets.h"

#include <gtest/gtest.h>

namespace tidepool::reconcilers::tls {
namespace {

constexpr int64_t kNow = 1'800'000'000;
const rpc::RoleIdentity kFleet{.space = "models", .pool = "demo"};

FleetCertificates Fresh() {
  return Renew({}, PlanRenewal({}, kFleet, kNow), kFleet, kNow).value();
}

TEST(TlsSecretsTest, AreReadAsTheyWereWritten) {
  FleetCertificates fleet = Fresh();
  EXPECT_EQ(AuthoritiesFromData(ToData(*fleet.authorities)), fleet.authorities);
  fleet.authorities->next = Fresh().authorities->signing;
  fleet.authorities->retired = Fresh().authorities->signing.certificate;
  EXPECT_EQ(AuthoritiesFromData(ToData(*fleet.authorities)), fleet.authorities);
  for (const auto& [component, leaf] : fleet.leaves)
    EXPECT_EQ(LeafFromData(ToData(leaf)), leaf);
}

TEST(TlsSecretsTest, WhatPodsMountHasNoKeyOfAnAuthority) {
  const FleetCertificates fleet = Fresh();
  for (const auto& [component, leaf] : fleet.leaves) {
    const Json data = ToData(leaf);
    EXPECT_EQ(data.size(), 3u);
    for (const char* entry : {"tls.crt", "tls.key", "ca.crt"})
      EXPECT_TRUE(data.contains(entry)) << entry;
    EXPECT_EQ(data.dump().find(ToData(*fleet.authorities)["ca.key"].dump()),
              std::string::npos);
  }
}

TEST(TlsSecretsTest, WhatIsNoSecretOfOursIsNothing) {
  for (const Json& data :
       {Json(), Json::array(), Json{{"ca.crt", 3}, {"ca.key", 4}},
        Json{{"ca.crt", "???"}, {"ca.key", "???"}},
        Json{{"tls.crt", "aGVsbG8="}}}) {
    EXPECT_EQ(AuthoritiesFromData(data), std::nullopt) << data;
    EXPECT_EQ(LeafFromData(data), std::nullopt) << data;
  }
}

TEST(TlsSecretsTest, ABrokenSuccessorIsLeftOut) {
  FleetCertificates fleet = Fresh();
  Json data = ToData(*fleet.authorities);
  data["next.crt"] = data["ca.crt"];
  data["next.key"] = "aGVsbG8=";
  data["retired.crt"] = "aGVsbG8=";
  EXPECT_EQ(AuthoritiesFromData(data), fleet.authorities);
}

}  // namespace
}  // namespace tidepool::reconcilers::tls
