// What the objects of a fleet are called, and what its parts listen on.
// Changing anything here changes pod templates, and so restarts fleets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tidepool::reconcilers {

inline constexpr std::string_view kAppName = "tidepool";
inline constexpr std::string_view kManagedBy = "tidepool-controller";

// A family is a KVCachePool with the pools that refer to it.
inline constexpr std::string_view kFamilyLabel = "tidepool.dev/kvcachepool";
inline constexpr std::string_view kPoolLabel = "tidepool.dev/pool";
inline constexpr std::string_view kRoleLabel = "tidepool.dev/role";
inline constexpr std::string_view kManagedByLabel =
    "app.kubernetes.io/managed-by";
inline constexpr std::string_view kComponentLabel =
    "app.kubernetes.io/component";
inline constexpr std::string_view kRevisionLabel = "controller-revision-hash";
// Of a StatefulSet: what its pod template was made from.
inline constexpr std::string_view kTemplateAnnotation =
    "tidepool.dev/template-digest";

inline constexpr int kConductorHttpPort = 8000;
inline constexpr int kConductorControlPort = 8002;
inline constexpr int kWorkerControlPort = 7000;
inline constexpr int kWorkerTransferPort = 7001;
inline constexpr int kWorkerHttpPort = 7002;

inline constexpr int64_t kUserId = 65532;
inline constexpr std::string_view kApiKeyEntry = "api-key";
inline constexpr std::string_view kCacheFolder = "/var/cache/tidepool";
inline constexpr std::string_view kClaimFolder = "/models";
inline constexpr std::string_view kApiKeyFolder = "/etc/tidepool/api-key";
inline constexpr std::string_view kTlsFolder = "/etc/tidepool/tls";
inline constexpr std::string_view kPerfModelFolder = "/etc/tidepool/perf-model";

// Between SIGTERM and the refusal of new connections: as long as load
// balancers take to notice that an endpoint is gone.
inline constexpr int64_t kDrainDelaySeconds = 10;
// On top of what a drain takes, for the process to end.
inline constexpr int64_t kEndSeconds = 15;

inline std::string ConductorName(std::string_view pool) {
  return std::string(pool) + "-conductor";
}
// Of the ServiceAccount and NetworkPolicy that all workers share.
inline std::string WorkerName(std::string_view pool) {
  return std::string(pool) + "-worker";
}
inline std::string ApiKeyName(std::string_view pool) {
  return std::string(pool) + "-api-key";
}
// Of the Secrets with the certificate of a component, and with the keys of the
// authority that signs them.
inline std::string TlsName(std::string_view pool, std::string_view component) {
  return std::string(pool) + "-" + std::string(component) + "-tls";
}
inline std::string TlsAuthorityName(std::string_view pool) {
  return std::string(pool) + "-tls-ca";
}

}  // namespace tidepool::reconcilers
