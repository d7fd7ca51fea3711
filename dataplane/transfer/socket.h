// Non-blocking sockets, and descriptors passed over them.
#pragma once

#include <span>
#include <string>

#include "dataplane/base/clock.h"
#include "dataplane/base/socket_address.h"
#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::transfer::internal {

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
