// Addresses of sockets, as texts and as the kernel wants them, and sockets that
// listen on them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* raw() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
};

// "host:port" as in a URL: an IPv6 address stands in brackets.
std::string HostPort(std::string_view host, uint16_t port);

// "10.0.0.1:80", "[::1]:80". Names are refused, so that it never waits.
// Errors: kInvalidArgument with the reason.
StatusOr<SocketAddress> ParseAddress(std::string_view host_port);
// A name too, for which it may wait for a name service.
StatusOr<SocketAddress> ResolveAddress(std::string_view host, uint16_t port);
// As ParseAddress reads it.
std::string ToText(const SocketAddress& address);

// A socket that listens and does not block. `port` 0 takes a free one. "::" is
// all of this machine, by IPv6 and by IPv4; a kernel without IPv6 leaves IPv4.
// Errors: those of ResolveAddress; kAlreadyExists (port in use), kUnavailable,
// naming host and port.
StatusOr<UniqueFd> ListenTcp(std::string_view host, uint16_t port);

StatusOr<SocketAddress> BoundAddress(int fd);
StatusOr<uint16_t> BoundPort(int fd);

}  // namespace tidepool
