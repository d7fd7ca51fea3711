#include "controller/kube/client_config.h"

#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>

#include "absl/strings/escaping.h"
#include "controller/kube/small_file.h"
#include "controller/kube/token_source.h"

namespace tidepool::kube {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;

// A kubeconfig being read; errors name its path.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  StatusOr<ClientConfig> Read(const std::string& context_name) const;

 private:
  template <typename... Args>
  Status Bad(fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidArgument("kubeconfig `{}`: {}", path_,
                           fmt::format(format, std::forward<Args>(args)...));
  }

  // The part `part` of the entry called `name` in the list `list`.
  StatusOr<YAML::Node> Entry(const YAML::Node& root, const char* list,
                             const std::string& name, const char* part) const;
  static std::string Text(const YAML::Node& node, const char* field) {
    return node[field] ? node[field].as<std::string>("") : std::string();
  }
  std::string Beside(const std::string& file) const;
  // `<field>-data` in base64, or the content of the file `<field>` names.
  StatusOr<std::string> Pem(const YAML::Node& node,
                            const std::string& field) const;
  Status ReadCluster(const YAML::Node& cluster, ClientConfig& config) const;
  Status ReadUser(const YAML::Node& user, ClientConfig& config) const;

  const std::string path_;
};

StatusOr<YAML::Node> Reader::Entry(const YAML::Node& root, const char* list,
                                   const std::string& name,
                                   const char* part) const {
  if (root[list].IsDefined() && !root[list].IsSequence())
    return Bad("`{}` is no list", list);
  for (const YAML::Node& entry : root[list])
    if (entry.IsMap() && Text(entry, "name") == name)
      return entry[part].IsMap() ? entry[part]
                                 : YAML::Node(YAML::NodeType::Map);
  return Bad("`{}` has no entry `{}`", list, name);
}

// Names of files are relative to the kubeconfig that has them.
std::string Reader::Beside(const std::string& file) const {
  return (std::filesystem::path(path_).parent_path() / file).string();
}

StatusOr<std::string> Reader::Pem(const YAML::Node& node,
                                  const std::string& field) const {
  const std::string data = Text(node, (field + "-data").c_str());
  if (!data.empty()) {
    std::string decoded;
    if (!absl::Base64Unescape(data, &decoded))
      return Bad("`{}-data` is no base64", field);
    return decoded;
  }
  const std::string file = Text(node, field.c_str());
  if (file.empty()) return std::string();
  StatusOr<std::string> text =
      internal::ReadSmallFile(Beside(file), kFileBytesMax);
  if (!text.ok())
    return Annotate(text.status(),
                    fmt::format("kubeconfig `{}`: `{}`", path_, field));
  return text;
}

Status Reader::ReadCluster(const YAML::Node& cluster,
                           ClientConfig& config) const {
  config.server = Text(cluster, "server");
  if (config.server.empty()) return Bad("`cluster.server` is missing");
  config.tls_server_name = Text(cluster, "tls-server-name");
  config.proxy_url = Text(cluster, "proxy-url");
  if (cluster["insecure-skip-tls-verify"]) {
    try {
      config.insecure_skip_tls_verify =
          cluster["insecure-skip-tls-verify"].as<bool>();
    } catch (const YAML::Exception&) {
      return Bad("`insecure-skip-tls-verify` is neither true nor false");
    }
  }
  ASSIGN_OR_RETURN(config.ca_pem, Pem(cluster, "certificate-authority"));
  if (config.insecure_skip_tls_verify && !config.ca_pem.empty())
    return Bad(
        "`insecure-skip-tls-verify` and `certificate-authority` exclude each "
        "other");
  return OkStatus();
}

Status Reader::ReadUser(const YAML::Node& user, ClientConfig& config) const {
  for (const char* field : {"exec", "auth-provider", "username", "password",
                            "as", "as-uid", "as-groups", "as-user-extra"})
    if (user[field])
      return Bad(
          "`user.{}` is not supported: give a client certificate, a token or a "
          "token file",
          field);
  config.token = Text(user, "token");
  if (!IsBearerToken(config.token))
    return Bad("`user.token` is no bearer token");
  if (const std::string file = Text(user, "tokenFile"); !file.empty())
    config.token_file = Beside(file);
  ASSIGN_OR_RETURN(config.client_certificate_pem,
                   Pem(user, "client-certificate"));
  ASSIGN_OR_RETURN(config.client_key_pem, Pem(user, "client-key"));
  if (config.client_certificate_pem.empty() != config.client_key_pem.empty())
    return Bad("`client-certificate` and `client-key` need each other");
  return OkStatus();
}

StatusOr<ClientConfig> Reader::Read(const std::string& context_name) const {
  ASSIGN_OR_RETURN(const std::string text,
                   internal::ReadSmallFile(path_, kFileBytesMax));
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return Bad("{}", error.what());
  }
  if (!root.IsMap()) return Bad("no kubeconfig");
  const std::string name =
      context_name.empty() ? Text(root, "current-context") : context_name;
  if (name.empty()) return Bad("no `current-context`, and none was asked for");
  ASSIGN_OR_RETURN(const YAML::Node context,
                   Entry(root, "contexts", name, "context"));
  ASSIGN_OR_RETURN(
      const YAML::Node cluster,
      Entry(root, "clusters", Text(context, "cluster"), "cluster"));
  ASSIGN_OR_RETURN(const YAML::Node user,
                   Entry(root, "users", Text(context, "user"), "user"));
  ClientConfig config;
  config.space = Text(context, "namespace");
  RETURN_IF_ERROR(ReadCluster(cluster, config));
  RETURN_IF_ERROR(ReadUser(user, config));
  return config;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

StatusOr<ClientConfig> LoadKubeconfig(const KubeconfigOptions& options) {
  try {
    return Reader(options.path).Read(options.context);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("kubeconfig `{}`: {}", options.path, error.what());
  }
}

StatusOr<ClientConfig> InClusterConfig(const std::string& directory) {
  const std::string host = Environment("KUBERNETES_SERVICE_HOST");
  const std::string port = Environment("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty())
    return FailedPrecondition(
        "no pod of Kubernetes: KUBERNETES_SERVICE_HOST and _PORT are not set");
  ClientConfig config;
  const bool bare_ipv6 = host.find(':') != std::string::npos && host[0] != '[';
  config.server = bare_ipv6 ? fmt::format("https://[{}]:{}", host, port)
                            : fmt::format("https://{}:{}", host, port);
  config.token_file = directory + "/token";
  config.ca_file = directory + "/ca.crt";
  // Fails now rather than at the first call.
  for (const std::string& file : {config.ca_file, config.token_file})
    RETURN_IF_ERROR(internal::ReadSmallFile(file, kFileBytesMax).status());
  const StatusOr<std::string> space =
      internal::ReadSmallFile(directory + "/namespace", kFileBytesMax);
  if (space.ok()) config.space = *space;
  return config;
}

StatusOr<ClientConfig> DefaultClientConfig(const std::string& path) {
  if (!path.empty()) return LoadKubeconfig({.path = path});
  const std::string named = Environment("KUBECONFIG");
  if (!named.empty()) {
    if (named.find(':') != std::string::npos)
      return InvalidArgument(
          "KUBECONFIG names several files, which are not merged: name one");
    return LoadKubeconfig({.path = named});
  }
  return InClusterConfig();
}

}  // namespace tidepool::kube
