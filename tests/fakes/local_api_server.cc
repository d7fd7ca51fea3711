#include "tests/fakes/local_api_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "controller/kube/http_client.h"
#include "controller/kube/resource_types.h"
#include "controller/kube/test_server.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/file.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::fakes {
namespace {

constexpr Duration kReadyTimeout = std::chrono::seconds(90);
constexpr char kToken[] = "of-a-test-on-loopback";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Free now; nobody else on a test machine hurries to take it.
int FreePort() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  if (bind(fd.get(), generic, length) != 0 ||
      getsockname(fd.get(), generic, &length) != 0)
    return 0;
  return ntohs(address.sin_port);
}

// Ends with this process.
StatusOr<pid_t> Spawn(const std::vector<std::string>& command,
                      const std::string& log) {
  if (access(command[0].c_str(), X_OK) != 0)
    return NotFound("no program `{}`", command[0]);
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const UniqueFd out(
      open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const pid_t child = fork();
  if (child < 0) return Unavailable("fork failed");
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(out.get(), STDOUT_FILENO);
  dup2(out.get(), STDERR_FILENO);
  execv(arguments[0], arguments.data());
  _exit(127);
}

void End(pid_t& process) {
  if (process <= 0) return;
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  process = -1;
}

}  // namespace

std::string KubeBinaries() {
  const char* folder = std::getenv("TIDEPOOL_KUBE_BIN");
  return folder == nullptr ? "" : folder;
}

LocalApiServer::LocalApiServer(std::string binaries, std::string folder)
    : binaries_(std::move(binaries)),
      folder_(std::move(folder)),
      etcd_port_(FreePort()),
      peer_port_(FreePort()),
      port_(FreePort()) {}

LocalApiServer::~LocalApiServer() {
  End(server_);
  End(etcd_);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

StatusOr<std::unique_ptr<LocalApiServer>> LocalApiServer::Start(
    const std::string& binaries) {
  std::string folder =
      (std::filesystem::temp_directory_path() / "tidepool-api-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr)
    return Unavailable("no temporary folder");
  std::unique_ptr<LocalApiServer> server(
      new LocalApiServer(binaries, std::move(folder)));
  RETURN_IF_ERROR(server->StartEtcd());
  RETURN_IF_ERROR(server->StartServer());
  return server;
}

Status LocalApiServer::StartEtcd() {
  const std::string client = fmt::format("http://127.0.0.1:{}", etcd_port_);
  const std::string peer = fmt::format("http://127.0.0.1:{}", peer_port_);
  ASSIGN_OR_RETURN(
      etcd_,
      Spawn({binaries_ + "/etcd", "--data-dir", folder_ + "/etcd",
             "--listen-client-urls", client, "--advertise-client-urls", client,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", "default=" + peer, "--unsafe-no-fsync",
             "--log-level", "error"},
            folder_ + "/etcd.log"));
  return OkStatus();
}

Status LocalApiServer::StartServer() {
  const auto in = [&](const char* name) { return folder_ + "/" + name; };
  if (!std::filesystem::exists(in("sa.key"))) {
    const auto signer = kube::testing::MakeCertificate("DNS:sa");
    RETURN_IF_ERROR(WriteFileAtomically(in("sa.key"), signer.key_pem));
    RETURN_IF_ERROR(WriteFileAtomically(in("sa.crt"), signer.certificate_pem));
    RETURN_IF_ERROR(WriteFileAtomically(
        in("tokens"), fmt::format("{},admin,admin,system:masters\n", kToken)));
  }
  const auto flag = [](const char* name, const std::string& value) {
    return fmt::format("--{}={}", name, value);
  };
  ASSIGN_OR_RETURN(
      server_,
      Spawn(
          {binaries_ + "/kube-apiserver",
           flag("etcd-servers", fmt::format("http://127.0.0.1:{}", etcd_port_)),
           flag("bind-address", "127.0.0.1"),
           flag("secure-port", std::to_string(port_)),
           flag("cert-dir", in("certs")), flag("token-auth-file", in("tokens")),
           flag("service-account-issuer", "https://kubernetes.default.svc"),
           flag("service-account-key-file", in("sa.crt")),
           flag("service-account-signing-key-file", in("sa.key")),
           flag("service-cluster-ip-range", "10.0.0.0/24"),
           flag("authorization-mode", "RBAC"),
           // Nobody makes service accounts here.
           flag("disable-admission-plugins", "ServiceAccount")},
          in("apiserver.log")));
  return AwaitReady();
}

Status LocalApiServer::AwaitReady() {
  config_ = {.server = fmt::format("https://127.0.0.1:{}", port_),
             .token = kToken};
  const TimePoint end = Clock::Monotonic().Now() + kReadyTimeout;
  while (Clock::Monotonic().Now() < end) {
    int state = 0;
    if (waitpid(server_, &state, WNOHANG) == server_) {
      server_ = -1;
      break;
    }
    config_.ca_pem = ReadAll(folder_ + "/certs/apiserver.crt");
    if (!config_.ca_pem.empty()) {
      const auto client = kube::HttpClient::Create(config_);
      if (client.ok() && (*client)->Get(kube::kNamespace, {"", "default"}).ok())
        return OkStatus();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const std::string log = ReadAll(folder_ + "/apiserver.log");
  return DeadlineExceeded(
      "kube-apiserver is not ready: {}",
      log.substr(log.size() - std::min<size_t>(log.size(), 2000)));
}

void LocalApiServer::Kill() { End(server_); }

Status LocalApiServer::Restart() { return StartServer(); }

}  // namespace tidepool::fakes
