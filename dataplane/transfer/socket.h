// Non-blocking sockets, and descriptors passed over them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::transfer::internal {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// "10.0.0.1:80", "[::1]:80". Names are refused, so that it never waits.
// Errors: kInvalidArgument with the reason.
StatusOr<SocketAddress> ParseAddress(std::string_view host_port);
// A name too, for which it may wait for a name service.
StatusOr<SocketAddress> ResolveAddress(std::string_view host, uint16_t port);
// As ParseAddress reads it.
std::string ToText(const SocketAddress& address);
// "host:port", with an IPv6 address in brackets.
std::string JoinHostPort(const std::string& host, int port);

// Errors: kAlreadyExists (port in use), kUnavailable.
StatusOr<UniqueFd> ListenTcp(const SocketAddress& address);
StatusOr<SocketAddress> BoundAddress(int fd);
StatusOr<uint16_t> BoundPort(int fd);

// Begins to connect; writable once decided, then ask ConnectResult. Dead peers
// are noticed within `stall_timeout`.
StatusOr<UniqueFd> ConnectTcp(const SocketAddress& address,
                              Duration stall_timeout);
Status ConnectResult(int fd);

// Abstract unix sockets; at most 100 bytes of `name`. Names live in a network
// namespace; every process in it may connect, so check PeerIsSameUser.
StatusOr<UniqueFd> ListenAbstract(const std::string& name);
StatusOr<UniqueFd> ConnectAbstract(const std::string& name);
// The process at the other end runs as our user.
bool PeerIsSameUser(int fd);

// kUnavailable if nobody waits to be accepted (or the connection is gone);
// kResourceExhausted without descriptors.
StatusOr<UniqueFd> Accept(int fd);
void SetNoDelay(int fd);

// Which boot of which kernel we run on; empty if it cannot be told.
std::string BootId();

}  // namespace tidepool::transfer::internal
