// Certificates in PEM, read and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/rpc/role_identity.h"

namespace tidepool::rpc {

// Inclusive, in seconds since the Unix epoch.
struct Validity {
  int64_t not_before = 0, not_after = 0;

  bool operator==(const Validity&) const = default;
};

struct CertificateFacts {
  Validity validity;
  bool is_authority = false;
  // Nullopt if it names no role, or more than one URI.
  std::optional<RoleIdentity> identity;
};

// What a process shows and whom it trusts; all PEM.
struct TlsMaterial {
  std::string
      certificate;  // its own first, then those that lead to `authorities`
  std::string key;
  std::string authorities;  // one or more

  bool operator==(const TlsMaterial&) const = default;
};

// Of each certificate in `pem`, in order.
// Errors: kInvalidArgument (none, broken, or more than 16).
StatusOr<std::vector<CertificateFacts>> ReadCertificates(std::string_view pem);

// That `key` belongs to the first certificate. Errors: kInvalidArgument.
Status CheckKey(std::string_view certificate_pem, std::string_view key_pem);

// That the first certificate is valid at `unix_seconds` and leads, through the
// others, to one of `authorities_pem`.
// Errors: kInvalidArgument; kFailedPrecondition (expired, not valid yet).
Status CheckTrusted(std::string_view certificate_pem,
                    std::string_view authorities_pem, int64_t unix_seconds);

}  // namespace tidepool::rpc
