#include "dataplane/rpc/security.h"

#include <arpa/inet.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/log.h"

namespace tidepool::rpc {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned int kRefreshSeconds = 1;
constexpr Duration kLogInterval = std::chrono::seconds(10);

// Lets one through per interval. Thread-safe.
class RateLimit {
 public:
  bool Allow() {
    const Duration::rep now =
        Clock::Monotonic().Now().time_since_epoch().count();
    Duration::rep next = next_.load(std::memory_order_relaxed);
    return now >= next &&
           next_.compare_exchange_strong(next, now + kLogInterval.count(),
                                         std::memory_order_relaxed);
  }

 private:
  std::atomic<Duration::rep> next_ = 0;
};

// The role of a peer whose certificate has been found to be of an authority of
// ours. Called on gRPC's threads.
class RoleVerifier : public tls::ExternalCertificateVerifier {
 public:
  RoleVerifier(RoleIdentity self, std::set<Component> accepted, bool is_server)
      : self_(std::move(self)),
        accepted_(std::move(accepted)),
        is_server_(is_server) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const Status judged = Judge(request->uri_names());
    if (judged.ok()) return true;
    *status = {grpc::StatusCode::UNAUTHENTICATED,
               std::string(MessageOf(judged))};
    // A client's caller gets to know it.
    if (is_server_ && refusals_.Allow())
      LOG_WARNING("a connection was refused: {}", MessageOf(judged));
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  Status Judge(const std::vector<grpc::string_ref>& uris) const {
    if (uris.size() != 1)
      return InvalidArgument("the peer's certificate has {} URIs, not 1",
                             uris.size());
    ASSIGN_OR_RETURN(
        const RoleIdentity peer,
        RoleIdentity::Parse({uris.front().data(), uris.front().size()}));
    if (!peer.IsFleetmateOf(self_))
      return FailedPrecondition("the peer is {}, of another fleet than {}",
                                peer.ToUri(), self_.ToUri());
    if (!accepted_.contains(peer.component))
      return FailedPrecondition("the peer is a {}, which has no business here",
                                NameOf(peer.component));
    return OkStatus();
  }

  const RoleIdentity self_;
  const std::set<Component> accepted_;
  const bool is_server_;
  RateLimit refusals_;
};

void Configure(
    const std::shared_ptr<tls::CertificateProviderInterface>& provider,
    const RoleIdentity& self, std::set<Component> accepted, bool is_server,
    tls::TlsCredentialsOptions& options) {
  options.set_certificate_provider(provider);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<RoleVerifier>(
          self, std::move(accepted), is_server));
}

}  // namespace

bool IsLoopback(const std::string& host) {
  in_addr address;
  return host == "localhost" || host == "::1" || host == "[::1]" ||
         (inet_pton(AF_INET, host.c_str(), &address) == 1 &&
          host.starts_with("127."));
}

struct Security::State {
  State() { grpc_init(); }
  ~State() {
    provider.reset();
    grpc_shutdown();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  RoleIdentity self;
  std::shared_ptr<tls::CertificateProviderInterface> provider;
};

Security::Security() = default;

StatusOr<Security> Security::Load(const TlsOptions& options, Component self,
                                  int64_t unix_seconds) {
  RETURN_IF_ERROR(Validate(options));
  Security security;
  if (!options.IsSet()) return security;
  ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(options, self, unix_seconds));
  security.state_ = std::make_shared<State>();
  security.state_->self = std::move(files.identity);
  security.state_->provider =
      std::make_shared<tls::FileWatcherCertificateProvider>(
          options.tls_key, options.tls_cert, options.tls_ca, kRefreshSeconds);
  return security;
}

StatusOr<Security> Security::Of(const TlsMaterial& material) {
  ASSIGN_OR_RETURN(const std::vector<CertificateFacts> facts,
                   ReadCertificates(material.certificate));
  RETURN_IF_ERROR(ReadCertificates(material.authorities).status());
  RETURN_IF_ERROR(CheckKey(material.certificate, material.key));
  if (!facts.front().identity.has_value())
    return InvalidArgument("the certificate names no role");
  Security security;
  security.state_ = std::make_shared<State>();
  security.state_->self = *facts.front().identity;
  security.state_->provider =
      std::make_shared<tls::StaticDataCertificateProvider>(
          material.authorities,
          std::vector<tls::IdentityKeyCertPair>{
              {.private_key = material.key,
               .certificate_chain = material.certificate}});
  return security;
}

std::shared_ptr<grpc::ServerCredentials> Security::ServerCredentials(
    std::set<Component> accepted) const {
  if (!IsTls()) return grpc::InsecureServerCredentials();
  tls::TlsServerCredentialsOptions options(state_->provider);
  Configure(state_->provider, state_->self, std::move(accepted), true, options);
  options.set_cert_request_type(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

Status Security::CheckCaller(const grpc::AuthContext& caller,
                             Component expected) const {
  if (!IsTls()) return OkStatus();
  for (const grpc::string_ref& uri :
       caller.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    const auto identity = RoleIdentity::Parse({uri.data(), uri.size()});
    if (identity.ok() && identity->component == expected) return OkStatus();
  }
  return MakeError(Code::kPermissionDenied, "this is for a {} alone",
                   NameOf(expected));
}

std::shared_ptr<grpc::Channel> Security::OpenChannel(
    const std::string& address, Component expected,
    const grpc::ChannelArguments& arguments) const {
  grpc::ChannelArguments direct = arguments;
  direct.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!IsTls())
    return grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), direct);
  tls::TlsChannelCredentialsOptions options;
  Configure(state_->provider, state_->self, {expected}, false, options);
  // What servers look for among their certificate's names, and log if they do
  // not find it; that alone is its use.
  direct.SetSslTargetNameOverride(std::string(NameOf(expected)));
  return grpc::CreateCustomChannel(address, tls::TlsCredentials(options),
                                   direct);
}

void Security::WarnIfExposed(std::string_view what,
                             const std::string& host) const {
  if (IsTls() || IsLoopback(host)) return;
  LOG_WARNING(
      "{} on {} has no TLS: whoever reaches it can use it and read along; give "
      "--tls-cert, --tls-key and --tls-ca, or keep it behind a NetworkPolicy",
      what, host);
}

}  // namespace tidepool::rpc
