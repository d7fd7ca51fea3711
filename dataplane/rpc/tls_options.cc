#include "dataplane/rpc/tls_options.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>

namespace tidepool::rpc {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;

StatusOr<std::string> ReadPem(const char* option, const std::string& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0)
    return ErrnoError(errno, fmt::format("{}: reading {}", option, path));
  if (!S_ISREG(about.st_mode))
    return InvalidArgument("{}: {} is no file", option, path);
  std::ifstream file(path, std::ios::binary);
  std::string content(kFileBytesMax + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (file.bad() || !file.is_open())
    return Unavailable("{}: {} cannot be read", option, path);
  content.resize(static_cast<size_t>(file.gcount()));
  if (content.size() > kFileBytesMax)
    return InvalidArgument("{}: {} has more than {} bytes", option, path,
                           kFileBytesMax);
  return content;
}

}  // namespace

void AddTlsOptions(OptionSet& set, TlsOptions& options) {
  set.AddString("tls-cert", options.tls_cert,
                "certificate (PEM) that this process shows to others of its "
                "fleet, who must show theirs; read again when it changes");
  set.AddString("tls-key", options.tls_key, "private key of --tls-cert (PEM)");
  set.AddString("tls-ca", options.tls_ca,
                "certificates (PEM) of the authorities whose certificates are "
                "trusted");
}

Status Validate(const TlsOptions& options) {
  const std::pair<const char*, const std::string*> all[] = {
      {"--tls-cert", &options.tls_cert},
      {"--tls-key", &options.tls_key},
      {"--tls-ca", &options.tls_ca}};
  const bool any = !options.tls_cert.empty() || !options.tls_key.empty() ||
                   !options.tls_ca.empty();
  for (const auto& [name, path] : all)
    if (any && path->empty())
      return InvalidArgument(
          "{}: is needed: --tls-cert, --tls-key and --tls-ca go together",
          name);
  return OkStatus();
}

StatusOr<TlsFiles> ReadTlsFiles(const TlsOptions& options, Component self,
                                int64_t unix_seconds) {
  TlsFiles files;
  TlsMaterial& material = files.material;
  ASSIGN_OR_RETURN(material.certificate,
                   ReadPem("--tls-cert", options.tls_cert));
  ASSIGN_OR_RETURN(material.key, ReadPem("--tls-key", options.tls_key));
  ASSIGN_OR_RETURN(material.authorities, ReadPem("--tls-ca", options.tls_ca));

  const std::string cert = "--tls-cert: " + options.tls_cert;
  const auto facts = ReadCertificates(material.certificate);
  RETURN_IF_ERROR(Annotate(facts.status(), cert));
  RETURN_IF_ERROR(Annotate(ReadCertificates(material.authorities).status(),
                           "--tls-ca: " + options.tls_ca));
  RETURN_IF_ERROR(Annotate(CheckKey(material.certificate, material.key),
                           "--tls-key: " + options.tls_key));
  RETURN_IF_ERROR(Annotate(
      CheckTrusted(material.certificate, material.authorities, unix_seconds),
      cert));
  const auto& identity = facts->front().identity;
  if (!identity.has_value())
    return InvalidArgument(
        "{}: names no role: its alternative names must have one URI, "
        "spiffe://tidepool/NAMESPACE/POOL/{}",
        cert, NameOf(self));
  if (identity->component != self)
    return InvalidArgument("{}: is for a {}, and this is a {}", cert,
                           NameOf(identity->component), NameOf(self));
  files.identity = *identity;
  return files;
}

}  // namespace tidepool::rpc
