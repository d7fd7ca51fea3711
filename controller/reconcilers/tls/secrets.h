// Certificates as Secrets. Three of them, so that no pod, and no node that runs
// it, sees more than it shows: NAME-tls-ca, which is mounted nowhere, has the
// authorities with their keys; NAME-conductor-tls and NAME-worker-tls are of
// type kubernetes.io/tls, with ca.crt.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "controller/reconcilers/tls/certificates.h"

namespace tidepool::reconcilers::tls {

using Json = nlohmann::json;

inline constexpr std::string_view kCertificateEntry = "tls.crt";
inline constexpr std::string_view kKeyEntry = "tls.key";
inline constexpr std::string_view kAuthoritiesEntry = "ca.crt";

// `data` of a Secret. What is not there, or not as it was written, is left out
// (and so is issued anew).
std::optional<Authorities> AuthoritiesFromData(const Json& data);
std::optional<rpc::TlsMaterial> LeafFromData(const Json& data);

Json ToData(const Authorities& authorities);
Json ToData(const rpc::TlsMaterial& leaf);

}  // namespace tidepool::reconcilers::tls
