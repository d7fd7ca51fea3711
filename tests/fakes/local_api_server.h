// A real kube-apiserver with its etcd, on loopback, for tests.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "controller/kube/client_config.h"
#include "dataplane/base/status.h"

namespace tidepool::fakes {

// The folder with the programs `etcd` and `kube-apiserver`: what the
// environment variable TIDEPOOL_KUBE_BIN names, or "" if it is not set.
std::string KubeBinaries();

// Externally synchronized. State goes with it.
class LocalApiServer {
 public:
  // Waits until the server is ready. Errors: kNotFound (a program),
  // kDeadlineExceeded with the end of its log.
  static StatusOr<std::unique_ptr<LocalApiServer>> Start(
      const std::string& binaries);
  ~LocalApiServer();

  // As a member of system:masters.
  const kube::ClientConfig& config() const { return config_; }

  // Ends kube-apiserver at once; what is stored stays.
  void Kill();
  // Starts it again after Kill. Errors: as Start.
  Status Restart();

 private:
  LocalApiServer(std::string binaries, std::string folder);
  Status StartEtcd();
  Status StartServer();
  Status AwaitReady();

  const std::string binaries_, folder_;
  int etcd_port_ = 0, peer_port_ = 0, port_ = 0;
  pid_t etcd_ = -1, server_ = -1;
  kube::ClientConfig config_;
};

}  // namespace tidepool::fakes
