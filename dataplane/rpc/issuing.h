// Certificates of a fleet's own authority: P-256, one role each.
#pragma once

#include <string>

#include "dataplane/base/status.h"
#include "dataplane/rpc/certificate.h"
#include "dataplane/rpc/role_identity.h"

namespace tidepool::rpc {

// A certificate and its private key, PEM.
struct KeyPair {
  std::string certificate, key;

  bool operator==(const KeyPair&) const = default;
};

// A new authority, signed by itself, for certificates of processes only. Each
// has a name of its own, so that several can be trusted at once. Keys and
// serial numbers are drawn from the system's randomness.
// Errors: kInvalidArgument (`validity` is empty), kInternal.
StatusOr<KeyPair> IssueCa(Validity validity);

// A certificate for both ends of a connection. Its alternative names are the
// URI of `identity` and the component as a host name, which clients announce
// and nobody relies on. It must not outlive `ca`.
// Errors: kInvalidArgument, kInternal.
StatusOr<KeyPair> IssueCertificate(const KeyPair& ca,
                                   const RoleIdentity& identity,
                                   Validity validity);

}  // namespace tidepool::rpc
