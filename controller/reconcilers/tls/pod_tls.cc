#include "controller/reconcilers/tls/pod_tls.h"

#include <fmt/format.h>

#include "controller/reconcilers/names.h"
#include "controller/reconcilers/tls/secrets.h"

namespace tidepool::reconcilers {

void AddTls(std::string_view pool, std::string_view component,
            PodParts& parts) {
  constexpr const char* kVolume = "tidepool-tls";
  parts.volumes.push_back(
      {{"name", kVolume},
       {"secret",
        {{"secretName", TlsName(pool, component)}, {"defaultMode", 0440}}}});
  // The folder as a whole: files that are mounted one by one never change.
  parts.mounts.push_back(
      {{"name", kVolume}, {"mountPath", kTlsFolder}, {"readOnly", true}});
  for (const auto& [flag, entry] :
       {std::pair{"tls-cert", tls::kCertificateEntry},
        std::pair{"tls-key", tls::kKeyEntry},
        std::pair{"tls-ca", tls::kAuthoritiesEntry}})
    parts.arguments.push_back(
        fmt::format("--{}={}/{}", flag, kTlsFolder, entry));
}

}  // namespace tidepool::reconcilers
