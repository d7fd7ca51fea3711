// OpenSSL's objects with owners, and PEM.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"

namespace tidepool::rpc::internal {

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, Freer<X509_free>>;

// An error with what OpenSSL says about it; its queue is empty afterwards.
Status OpensslError(Code code, std::string_view attempt);

// One or more. Errors: kInvalidArgument (none, one that is broken, or more
// than 16).
StatusOr<std::vector<CertificatePtr>> ParseCertificates(std::string_view pem);
// Not encrypted. Errors: kInvalidArgument.
StatusOr<KeyPtr> ParseKey(std::string_view pem);

std::string ToPem(X509& certificate);
// PKCS #8, not encrypted.
std::string ToPem(EVP_PKEY& key);

}  // namespace tidepool::rpc::internal
