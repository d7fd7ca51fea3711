// Where the API server is and who we are to it.
#pragma once

#include <string>

#include "dataplane/base/status.h"

namespace tidepool::kube {

struct ClientConfig {
  std::string server;           // "https://host:port", or with a path
  std::string tls_server_name;  // "": the host of `server`
  std::string ca_pem;           // "": the system's authorities
  std::string ca_file;  // wins over `ca_pem`; read again for each connection
  bool insecure_skip_tls_verify = false;
  std::string client_certificate_pem, client_key_pem;  // both or none
  std::string token;
  std::string token_file;  // wins over `token`; read again as it rotates
  std::string proxy_url;   // "": none, whatever the environment says
  std::string space;       // the namespace the configuration names, or ""
};

struct KubeconfigOptions {
  std::string path;
  std::string context;  // "": the file's current-context
};

// Reads a kubeconfig file and the files it names, relative to it. Plugins
// (`exec`, `auth-provider`), passwords and impersonation are refused by name.
// Errors: kNotFound (a file), kInvalidArgument naming file and field.
StatusOr<ClientConfig> LoadKubeconfig(const KubeconfigOptions& options);

// What Kubernetes gives every pod with a service account: address in the
// environment, authority and token, which both rotate, in files below
// `directory`.
// Errors: kFailedPrecondition outside a pod, kNotFound (a file).
inline constexpr char kServiceAccountDirectory[] =
    "/var/run/secrets/kubernetes.io/serviceaccount";
StatusOr<ClientConfig> InClusterConfig(
    const std::string& directory = kServiceAccountDirectory);

// The kubeconfig at `path`, or, if that is empty, the one that the variable
// KUBECONFIG names, or the pod's.
StatusOr<ClientConfig> DefaultClientConfig(const std::string& path);

}  // namespace tidepool::kube
