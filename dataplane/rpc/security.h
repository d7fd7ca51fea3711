// What gRPC's servers and channels are made with: mutual TLS by role, or plain
// text where no certificate was given.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "dataplane/base/status.h"
#include "dataplane/rpc/certificate.h"
#include "dataplane/rpc/role_identity.h"
#include "dataplane/rpc/tls_options.h"

namespace grpc {
class AuthContext;
class Channel;
class ChannelArguments;
class ServerCredentials;
}  // namespace grpc

namespace tidepool::rpc {

// Of an address in digits, or "localhost"; other names may be anywhere.
bool IsLoopback(const std::string& host);

// Who this process is to its fleet. A peer must show a certificate that an
// authority of ours signed, for a component that is expected, of the same fleet
// (namespace and pool). Host names mean nothing: addresses of pods change.
//
// A peer that fails this is told so by the end of the handshake; a server logs
// what role was not accepted, at most once in ten seconds. Thread-safe; copies
// share everything.
class Security {
 public:
  // Plain text.
  Security();
  // Of the files, which are looked at every second: a certificate, key or
  // authority that changed serves the connections to come, and those that are
  // there go on. Files that do not fit each other serve none until they do.
  // Plain text if `options` are not set.
  // Errors: those of ReadTlsFiles.
  static StatusOr<Security> Load(const TlsOptions& options, Component self,
                                 int64_t unix_seconds);
  // Of what stays as it is. Errors: kInvalidArgument.
  static StatusOr<Security> Of(const TlsMaterial& material);

  bool IsTls() const { return state_ != nullptr; }

  // For servers that peers of these components may call.
  std::shared_ptr<grpc::ServerCredentials> ServerCredentials(
      std::set<Component> accepted) const;
  // Whether the caller, whom ServerCredentials let in, is an `expected`; in
  // plain text nobody knows. Errors: kPermissionDenied.
  Status CheckCaller(const grpc::AuthContext& caller, Component expected) const;
  // A channel to `address`, where an `expected` must be. Never by a proxy: what
  // the environment says of one is for the world outside.
  std::shared_ptr<grpc::Channel> OpenChannel(
      const std::string& address, Component expected,
      const grpc::ChannelArguments& arguments) const;

  // Warns, once a call, that `what` ("--port") on `host` is open to whoever
  // reaches it: plain text beyond loopback.
  void WarnIfExposed(std::string_view what, const std::string& host) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // null: plain text
};

}  // namespace tidepool::rpc
