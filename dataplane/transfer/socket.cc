#include "dataplane/transfer/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

namespace tidepool::transfer::internal {
namespace {

constexpr int kBacklog = 128;
constexpr size_t kMaxAbstractName = 100;

StatusOr<SocketAddress> AbstractAddress(const std::string& name) {
  if (name.empty() || name.size() > kMaxAbstractName)
    return InvalidArgument("unix socket name of {} bytes", name.size());
  SocketAddress address;
  auto& unix_address = reinterpret_cast<sockaddr_un&>(address.storage);
  unix_address.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract.
  std::memcpy(unix_address.sun_path + 1, name.data(), name.size());
  address.length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

}  // namespace

StatusOr<UniqueFd> ConnectTcp(const SocketAddress& address,
                              Duration stall_timeout) {
  UniqueFd fd(socket(address.storage.ss_family,
                     SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoError(errno, "socket");
  SetNoDelay(fd.get());
  const auto timeout_ms = static_cast<unsigned int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(stall_timeout)
          .count());
  setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms,
             sizeof(timeout_ms));
  if (connect(fd.get(), address.raw(), address.length) != 0 &&
      errno != EINPROGRESS)
    return ErrnoError(errno, "connect");
  return fd;
}

Status ConnectResult(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0)
    return Unavailable("connect: {}", MessageOf(ErrnoError(error, "socket")));
  return OkStatus();
}

StatusOr<UniqueFd> ListenAbstract(const std::string& name) {
  ASSIGN_OR_RETURN(const SocketAddress address, AbstractAddress(name));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoError(errno, "socket");
  if (bind(fd.get(), address.raw(), address.length) != 0)
    return ErrnoError(errno, "bind");
  if (listen(fd.get(), kBacklog) != 0) return ErrnoError(errno, "listen");
  return fd;
}

StatusOr<UniqueFd> ConnectAbstract(const std::string& name) {
  ASSIGN_OR_RETURN(const SocketAddress address, AbstractAddress(name));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoError(errno, "socket");
  // Never in progress: a unix socket connects at once or not at all.
  if (connect(fd.get(), address.raw(), address.length) != 0)
    return ErrnoError(errno, "connect to its unix socket");
  return fd;
}

bool PeerIsSameUser(int fd) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == geteuid();
}

StatusOr<UniqueFd> Accept(int fd) {
  UniqueFd accepted(
      accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!accepted) return ErrnoError(errno, "accept");
  return accepted;
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace tidepool::transfer::internal
