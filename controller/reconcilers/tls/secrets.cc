#include "controller/reconcilers/tls/secrets.h"

#include "absl/strings/escaping.h"

namespace tidepool::reconcilers::tls {
namespace {

constexpr std::string_view kCaCertificate = "ca.crt", kCaKey = "ca.key";
constexpr std::string_view kNextCertificate = "next.crt", kNextKey = "next.key";
constexpr std::string_view kRetired = "retired.crt";

std::string Entry(const Json& data, std::string_view name) {
  if (!data.is_object()) return "";
  const auto entry = data.find(name);
  std::string text;
  if (entry == data.end() || !entry->is_string() ||
      !absl::Base64Unescape(entry->get<std::string>(), &text))
    return "";
  return text;
}

std::string Encode(const std::string& text) { return absl::Base64Escape(text); }

}  // namespace

std::optional<Authorities> AuthoritiesFromData(const Json& data) {
  Authorities authorities{
      .signing = {.certificate = Entry(data, kCaCertificate),
                  .key = Entry(data, kCaKey)},
      .retired = Entry(data, kRetired)};
  if (authorities.signing.certificate.empty() ||
      authorities.signing.key.empty())
    return std::nullopt;
  rpc::KeyPair next{.certificate = Entry(data, kNextCertificate),
                    .key = Entry(data, kNextKey)};
  // It goes into what is given to pods: all or nothing.
  if (rpc::CheckKey(next.certificate, next.key).ok())
    authorities.next = std::move(next);
  if (!rpc::ReadCertificates(authorities.retired).ok())
    authorities.retired.clear();
  return authorities;
}

std::optional<rpc::TlsMaterial> LeafFromData(const Json& data) {
  rpc::TlsMaterial leaf{.certificate = Entry(data, kCertificateEntry),
                        .key = Entry(data, kKeyEntry),
                        .authorities = Entry(data, kAuthoritiesEntry)};
  if (leaf.certificate.empty() || leaf.key.empty()) return std::nullopt;
  return leaf;
}

Json ToData(const Authorities& authorities) {
  Json data = {{kCaCertificate, Encode(authorities.signing.certificate)},
               {kCaKey, Encode(authorities.signing.key)}};
  if (authorities.next.has_value()) {
    data[kNextCertificate] = Encode(authorities.next->certificate);
    data[kNextKey] = Encode(authorities.next->key);
  }
  if (!authorities.retired.empty())
    data[kRetired] = Encode(authorities.retired);
  return data;
}

Json ToData(const rpc::TlsMaterial& leaf) {
  return {{kCertificateEntry, Encode(leaf.certificate)},
          {kKeyEntry, Encode(leaf.key)},
          {kAuthoritiesEntry, Encode(leaf.authorities)}};
}

}  // namespace tidepool::reconcilers::tls
