#include "dataplane/rpc/openssl_util.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include "dataplane/base/check.h"

namespace tidepool::rpc::internal {
namespace {

constexpr size_t kCertificatesMax = 16;

BioPtr Reader(std::string_view text) {
  BioPtr bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  CHECK(bio != nullptr);
  return bio;
}

std::string ContentOf(BIO& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(&bio, &data);
  return {data, static_cast<size_t>(size)};
}

// An encrypted key is refused instead of asking a terminal for the password.
int NoPassword(char*, int, int, void*) { return -1; }

}  // namespace

Status OpensslError(Code code, std::string_view attempt) {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return MakeError(code, "{}: {}", attempt,
                   reason == nullptr ? "unknown reason" : reason);
}

StatusOr<std::vector<CertificatePtr>> ParseCertificates(std::string_view pem) {
  const BioPtr bio = Reader(pem);
  std::vector<CertificatePtr> certificates;
  while (X509* const next =
             PEM_read_bio_X509(bio.get(), nullptr, &NoPassword, nullptr)) {
    certificates.emplace_back(next);
    if (certificates.size() > kCertificatesMax)
      return InvalidArgument("has more than {} certificates", kCertificatesMax);
  }
  // The end of the text looks like a block that does not begin.
  const bool at_end =
      ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (!at_end)
    return OpensslError(Code::kInvalidArgument, "a certificate is broken");
  ERR_clear_error();
  if (certificates.empty()) return InvalidArgument("has no certificate in PEM");
  return certificates;
}

StatusOr<KeyPtr> ParseKey(std::string_view pem) {
  const BioPtr bio = Reader(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassword, nullptr));
  if (key == nullptr)
    return OpensslError(Code::kInvalidArgument,
                        "has no private key in PEM without a password");
  return key;
}

std::string ToPem(X509& certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  CHECK(PEM_write_bio_X509(bio.get(), &certificate) == 1);
  return ContentOf(*bio);
}

std::string ToPem(EVP_PKEY& key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  CHECK(PEM_write_bio_PrivateKey(bio.get(), &key, nullptr, nullptr, 0, nullptr,
                                 nullptr) == 1);
  return ContentOf(*bio);
}

}  // namespace tidepool::rpc::internal
