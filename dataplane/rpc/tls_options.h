// How a program is told its certificate.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/config.h"
#include "dataplane/base/status.h"
#include "dataplane/rpc/certificate.h"
#include "dataplane/rpc/role_identity.h"

namespace tidepool::rpc {

// Paths of PEM files; all set or none.
struct TlsOptions {
  std::string tls_cert, tls_key, tls_ca;

  bool IsSet() const { return !tls_cert.empty(); }
};
void AddTlsOptions(OptionSet& set, TlsOptions& options);
// Errors: kInvalidArgument naming what is missing.
Status Validate(const TlsOptions& options);

// Reads the files and checks that they fit each other and say that this
// process is a `self`; `identity` is what they say.
// Errors: naming the option and why: kNotFound or kUnavailable (unreadable),
// kInvalidArgument, kFailedPrecondition (expired).
struct TlsFiles {
  TlsMaterial material;
  RoleIdentity identity;
};
StatusOr<TlsFiles> ReadTlsFiles(const TlsOptions& options, Component self,
                                int64_t unix_seconds);

}  // namespace tidepool::rpc
