#include "dataplane/rpc/certificate.h"

#include <openssl/x509v3.h>

#include <ctime>

#include "dataplane/base/check.h"
#include "dataplane/rpc/openssl_util.h"

namespace tidepool::rpc {
namespace {

using internal::CertificatePtr;
using internal::Freer;
using internal::KeyPtr;
using internal::ParseCertificates;
using internal::ParseKey;

using NamesPtr = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;
using StorePtr = std::unique_ptr<X509_STORE, Freer<X509_STORE_free>>;
using StoreContextPtr =
    std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>>;
// Borrows its elements.
struct StackFreer {
  void operator()(STACK_OF(X509) * stack) const { sk_X509_free(stack); }
};
using StackPtr = std::unique_ptr<STACK_OF(X509), StackFreer>;

StatusOr<int64_t> UnixTimeOf(const ASN1_TIME* time) {
  std::tm fields{};
  if (ASN1_TIME_to_tm(time, &fields) != 1)
    return InvalidArgument("a certificate's validity is no time");
  return static_cast<int64_t>(timegm(&fields));
}

std::string DateOf(int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm fields{};
  char text[32] = "";
  if (gmtime_r(&time, &fields) != nullptr)
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

std::optional<RoleIdentity> IdentityOf(const X509& certificate) {
  const NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::optional<RoleIdentity> identity;
  int uris = 0;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get());
       ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    StatusOr<RoleIdentity> parsed = RoleIdentity::Parse(
        {reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
         static_cast<size_t>(ASN1_STRING_length(uri))});
    if (parsed.ok()) identity = *std::move(parsed);
    ++uris;
  }
  return uris == 1 ? identity : std::nullopt;
}

StatusOr<CertificateFacts> FactsOf(X509& certificate) {
  CertificateFacts facts{.is_authority = X509_check_ca(&certificate) != 0,
                         .identity = IdentityOf(certificate)};
  ASSIGN_OR_RETURN(facts.validity.not_before,
                   UnixTimeOf(X509_get0_notBefore(&certificate)));
  ASSIGN_OR_RETURN(facts.validity.not_after,
                   UnixTimeOf(X509_get0_notAfter(&certificate)));
  return facts;
}

// Separate from OpenSSL's verdict for a message that has the times.
Status CheckValidity(X509& certificate, int64_t now) {
  ASSIGN_OR_RETURN(const CertificateFacts facts, FactsOf(certificate));
  const auto [from, to] = facts.validity;
  if (now > to)
    return FailedPrecondition("expired on {}, and now is {}", DateOf(to),
                              DateOf(now));
  if (now < from)
    return FailedPrecondition("is not valid before {}, and now is {}",
                              DateOf(from), DateOf(now));
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<CertificateFacts>> ReadCertificates(std::string_view pem) {
  ASSIGN_OR_RETURN(const std::vector<CertificatePtr> certificates,
                   ParseCertificates(pem));
  std::vector<CertificateFacts> all;
  for (const CertificatePtr& certificate : certificates) {
    ASSIGN_OR_RETURN(CertificateFacts facts, FactsOf(*certificate));
    all.push_back(std::move(facts));
  }
  return all;
}

Status CheckKey(std::string_view certificate_pem, std::string_view key_pem) {
  ASSIGN_OR_RETURN(const std::vector<CertificatePtr> certificates,
                   ParseCertificates(certificate_pem));
  ASSIGN_OR_RETURN(const KeyPtr key, ParseKey(key_pem));
  if (X509_check_private_key(certificates.front().get(), key.get()) != 1)
    return internal::OpensslError(Code::kInvalidArgument,
                                  "does not belong to the certificate");
  return OkStatus();
}

Status CheckTrusted(std::string_view certificate_pem,
                    std::string_view authorities_pem, int64_t unix_seconds) {
  ASSIGN_OR_RETURN(const std::vector<CertificatePtr> certificates,
                   ParseCertificates(certificate_pem));
  ASSIGN_OR_RETURN(const std::vector<CertificatePtr> authorities,
                   ParseCertificates(authorities_pem));
  X509& own = *certificates.front();
  RETURN_IF_ERROR(CheckValidity(own, unix_seconds));

  const StorePtr store(X509_STORE_new());
  for (const CertificatePtr& authority : authorities)
    CHECK(X509_STORE_add_cert(store.get(), authority.get()) == 1);
  const StackPtr chain(sk_X509_new_null());
  for (const CertificatePtr& certificate : certificates)
    CHECK(sk_X509_push(chain.get(), certificate.get()) > 0);
  const StoreContextPtr context(X509_STORE_CTX_new());
  CHECK(X509_STORE_CTX_init(context.get(), store.get(), &own, chain.get()) ==
        1);
  X509_STORE_CTX_set_time(context.get(), 0, unix_seconds);
  if (X509_verify_cert(context.get()) == 1) return OkStatus();
  return InvalidArgument(
      "is not of these authorities: {}",
      X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())));
}

}  // namespace tidepool::rpc
