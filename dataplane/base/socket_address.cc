#include "dataplane/base/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace tidepool {
namespace {

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

bool IsAnyIpv6(const SocketAddress& address) {
  return address.storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(
             &reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
}

SocketAddress AnyIpv4(uint16_t port) {
  SocketAddress address;
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.storage);
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  address.length = sizeof(ipv4);
  return address;
}

StatusOr<UniqueFd> Bind(UniqueFd fd, const SocketAddress& address) {
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.storage.ss_family == AF_INET6)
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd.get(), address.raw(), address.length) != 0)
    return ErrnoError(errno, "bind");
  if (listen(fd.get(), SOMAXCONN) != 0) return ErrnoError(errno, "listen");
  return fd;
}

UniqueFd OpenTcp(const SocketAddress& address) {
  return UniqueFd(socket(address.storage.ss_family,
                         SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

std::string HostPort(std::string_view host, uint16_t port) {
  const bool bare_ipv6 = host.find(':') != host.npos && host.front() != '[';
  return bare_ipv6 ? fmt::format("[{}]:{}", host, port)
                   : fmt::format("{}:{}", host, port);
}

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
  getnameinfo(address.raw(), address.length, host, sizeof(host), port,
              sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  return HostPort(host, static_cast<uint16_t>(std::atoi(port)));
}

StatusOr<UniqueFd> ListenTcp(std::string_view host, uint16_t port) {
  ASSIGN_OR_RETURN(SocketAddress address, ResolveAddress(host, port));
  UniqueFd fd = OpenTcp(address);
  if (!fd && errno == EAFNOSUPPORT && IsAnyIpv6(address)) {
    address = AnyIpv4(port);
    fd = OpenTcp(address);
  }
  StatusOr<UniqueFd> listener =
      fd ? Bind(std::move(fd), address) : ErrnoError(errno, "socket");
  if (!listener.ok())
    return Annotate(listener.status(),
                    fmt::format("listening on {}", HostPort(host, port)));
  return listener;
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

}  // namespace tidepool
