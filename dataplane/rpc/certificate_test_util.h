// Certificates for tests, valid around now.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "dataplane/base/clock.h"
#include "dataplane/rpc/issuing.h"

namespace tidepool::rpc {

inline constexpr int64_t kDay = 24 * 3600;

inline int64_t UnixNow() { return static_cast<int64_t>(UnixSeconds()); }

inline KeyPair TestCa() {
  auto ca = IssueCa(
      {.not_before = UnixNow() - 9 * kDay, .not_after = UnixNow() + 9 * kDay});
  EXPECT_TRUE(ca.ok()) << ca.status();
  return *std::move(ca);
}

inline RoleIdentity TestRole(Component component) {
  return {.space = "default", .pool = "demo", .component = component};
}

inline TlsMaterial TestMaterial(const KeyPair& ca, const RoleIdentity& identity,
                                Validity validity) {
  auto leaf = IssueCertificate(ca, identity, validity);
  EXPECT_TRUE(leaf.ok()) << leaf.status();
  return {.certificate = leaf->certificate,
          .key = leaf->key,
          .authorities = ca.certificate};
}
inline TlsMaterial TestMaterial(const KeyPair& ca,
                                const RoleIdentity& identity) {
  return TestMaterial(
      ca, identity,
      {.not_before = UnixNow() - kDay, .not_after = UnixNow() + kDay});
}

}  // namespace tidepool::rpc
