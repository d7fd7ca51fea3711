#include "dataplane/rpc/issuing.h"

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/x509v3.h>

#include "dataplane/rpc/openssl_util.h"

namespace tidepool::rpc {
namespace {

using internal::CertificatePtr;
using internal::Freer;
using internal::KeyPtr;
using internal::OpensslError;
using internal::ToPem;

using BigNumberPtr = std::unique_ptr<BIGNUM, Freer<BN_free>>;
using ExtensionPtr =
    std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;

constexpr int kVersion3 = 2;
// Positive, and within the 20 bytes that RFC 5280 allows.
constexpr int kSerialBits = 127;

struct Extension {
  int nid;
  std::string value;  // as in OpenSSL's configuration files
};

Status Failed(std::string_view attempt) {
  return OpensslError(Code::kInternal, attempt);
}

// A certificate without issuer, names and signature.
StatusOr<CertificatePtr> Draft(EVP_PKEY& key, Validity validity) {
  if (validity.not_before >= validity.not_after)
    return InvalidArgument("validity: it ends before it begins");
  CertificatePtr draft(X509_new());
  const BigNumberPtr serial(BN_new());
  const bool is_made =
      draft != nullptr && serial != nullptr &&
      X509_set_version(draft.get(), kVersion3) == 1 &&
      BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) ==
          1 &&
      BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(draft.get())) !=
          nullptr &&
      ASN1_TIME_set(X509_getm_notBefore(draft.get()), validity.not_before) !=
          nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(draft.get()), validity.not_after) !=
          nullptr &&
      X509_set_pubkey(draft.get(), &key) == 1;
  if (!is_made) return Failed("drafting a certificate");
  return draft;
}

Status SetSubject(X509& draft, const std::string& common_name) {
  const auto* const text =
      reinterpret_cast<const unsigned char*>(common_name.c_str());
  if (X509_NAME_add_entry_by_NID(X509_get_subject_name(&draft), NID_commonName,
                                 MBSTRING_ASC, text, -1, -1, 0) != 1)
    return Failed("naming a certificate");
  return OkStatus();
}

// `issuer` may be the draft itself.
Status Sign(X509& draft, X509& issuer, EVP_PKEY& issuer_key,
            const std::vector<Extension>& extensions) {
  if (X509_set_issuer_name(&draft, X509_get_subject_name(&issuer)) != 1)
    return Failed("naming an issuer");
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, &issuer, &draft, nullptr, nullptr, 0);
  for (const auto& [nid, value] : extensions) {
    const ExtensionPtr extension(
        X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
    if (extension == nullptr || X509_add_ext(&draft, extension.get(), -1) != 1)
      return Failed("extending a certificate");
  }
  if (X509_sign(&draft, &issuer_key, EVP_sha256()) == 0)
    return Failed("signing a certificate");
  return OkStatus();
}

StatusOr<KeyPtr> NewKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("making a key");
  return key;
}

std::string SerialOf(X509& certificate) {
  const BigNumberPtr serial(
      ASN1_INTEGER_to_BN(X509_get0_serialNumber(&certificate), nullptr));
  char* const hex = BN_bn2hex(serial.get());
  std::string text(hex);
  OPENSSL_free(hex);
  return text;
}

}  // namespace

StatusOr<KeyPair> IssueCa(Validity validity) {
  ASSIGN_OR_RETURN(const KeyPtr key, NewKey());
  ASSIGN_OR_RETURN(const CertificatePtr ca, Draft(*key, validity));
  RETURN_IF_ERROR(SetSubject(*ca, "tidepool " + SerialOf(*ca)));
  RETURN_IF_ERROR(Sign(*ca, *ca, *key,
                       {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                        {NID_key_usage, "critical,keyCertSign,cRLSign"},
                        {NID_subject_key_identifier, "hash"}}));
  return KeyPair{.certificate = ToPem(*ca), .key = ToPem(*key)};
}

StatusOr<KeyPair> IssueCertificate(const KeyPair& ca,
                                   const RoleIdentity& identity,
                                   Validity validity) {
  RETURN_IF_ERROR(Validate(identity));
  ASSIGN_OR_RETURN(const std::vector<CertificatePtr> issuers,
                   internal::ParseCertificates(ca.certificate));
  ASSIGN_OR_RETURN(const std::vector<CertificateFacts> facts,
                   ReadCertificates(ca.certificate));
  RETURN_IF_ERROR(CheckKey(ca.certificate, ca.key));
  ASSIGN_OR_RETURN(const KeyPtr ca_key, internal::ParseKey(ca.key));
  if (!facts.front().is_authority)
    return InvalidArgument("ca: is no authority's certificate");
  if (validity.not_after > facts.front().validity.not_after)
    return InvalidArgument("validity: ends after the authority's");
  ASSIGN_OR_RETURN(const KeyPtr key, NewKey());
  ASSIGN_OR_RETURN(const CertificatePtr leaf, Draft(*key, validity));
  RETURN_IF_ERROR(SetSubject(*leaf, std::string(NameOf(identity.component))));
  RETURN_IF_ERROR(Sign(
      *leaf, *issuers.front(), *ca_key,
      {{NID_basic_constraints, "critical,CA:FALSE"},
       {NID_key_usage, "critical,digitalSignature"},
       {NID_ext_key_usage, "serverAuth,clientAuth"},
       {NID_subject_alt_name, fmt::format("URI:{},DNS:{}", identity.ToUri(),
                                          NameOf(identity.component))},
       {NID_subject_key_identifier, "hash"},
       {NID_authority_key_identifier, "keyid:always"}}));
  return KeyPair{.certificate = ToPem(*leaf), .key = ToPem(*key)};
}

}  // namespace tidepool::rpc
