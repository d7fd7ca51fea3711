#include "dataplane/transfer/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
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

const sockaddr* Raw(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

StatusOr<UniqueFd> Listen(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family,
                     SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoError(errno, "socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), Raw(address), address.length) != 0)
    return ErrnoError(errno, "bind");
  if (listen(fd.get(), kBacklog) != 0) return ErrnoError(errno, "listen");
  return fd;
}

StatusOr<SocketAddress> Resolve(std::string_view text, uint16_t port,
                                int flags) {
  const bool bracketed =
      text.size() >= 2 && text.front() == '[' && text.back() == ']';
  const std::string host(bracketed ? text.substr(1, text.size() - 2) : text);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const int result =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (result != 0)
    return InvalidArgument("host '{}': {}", host, gai_strerror(result));
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

}  // namespace

StatusOr<SocketAddress> ResolveAddress(std::string_view host, uint16_t port) {
  return Resolve(host, port, 0);
}

StatusOr<SocketAddress> ParseAddress(std::string_view host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == std::string_view::npos)
    return InvalidArgument("address '{}': not host:port", host_port);
  const std::string_view host = host_port.substr(0, colon);
  const std::string_view digits = host_port.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0)
    return InvalidArgument("address '{}': bad port", host_port);
  if (host.empty()) return InvalidArgument("address '{}': no host", host_port);
  return Resolve(host, port, AI_NUMERICHOST);
}

std::string ToText(const SocketAddress& address) {
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "0";
  getnameinfo(Raw(address), address.length, host, sizeof(host), port,
              sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  return JoinHostPort(host, std::atoi(port));
}

std::string JoinHostPort(const std::string& host, int port) {
  const bool bare_ipv6 = host.find(':') != std::string::npos && host[0] != '[';
  return bare_ipv6 ? fmt::format("[{}]:{}", host, port)
                   : fmt::format("{}:{}", host, port);
}

StatusOr<UniqueFd> ListenTcp(const SocketAddress& address) {
  return Listen(address);
}

StatusOr<SocketAddress> BoundAddress(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage),
                  &address.length) != 0)
    return ErrnoError(errno, "getsockname");
  return address;
}

StatusOr<uint16_t> BoundPort(int fd) {
  ASSIGN_OR_RETURN(SocketAddress address, BoundAddress(fd));
  if (address.storage.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in&>(address.storage).sin_port);
}

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
  if (connect(fd.get(), Raw(address), address.length) != 0 &&
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
  return Listen(address);
}

StatusOr<UniqueFd> ConnectAbstract(const std::string& name) {
  ASSIGN_OR_RETURN(const SocketAddress address, AbstractAddress(name));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoError(errno, "socket");
  // Never in progress: a unix socket connects at once or not at all.
  if (connect(fd.get(), Raw(address), address.length) != 0)
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
