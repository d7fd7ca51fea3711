#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tidepool::conductor {

// As in a URL: an IPv6 address stands in brackets.
inline std::string HostPort(std::string_view host, uint16_t port) {
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port)
                                     : fmt::format("[{}]:{}", host, port);
}

}  // namespace tidepool::conductor
