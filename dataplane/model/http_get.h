// One HTTP GET.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"

namespace tidepool::model {

// Status line and headers of a response.
struct HttpHead {
  int status = 0;
  std::map<std::string, std::string, std::less<>> headers;  // lower-case names

  // Empty if the header is not there.
  std::string_view Header(std::string_view name) const;
  bool IsRedirect() const;
};

struct HttpGet {
  std::string url;                   // http or https
  std::vector<std::string> headers;  // "Name: value"
  Duration connect_timeout = std::chrono::seconds(15);
  // The longest silence, noticed within about a second.
  Duration stall_timeout = std::chrono::seconds(60);
  Duration timeout = std::chrono::hours(1);  // of the whole exchange
  std::stop_token stop;

  // Called once the head is complete, then for each piece of the body of a 200
  // or 206; other bodies are dropped. An error ends the exchange and is
  // returned as it is.
  std::function<Status(const HttpHead&)> on_head;
  std::function<Status(std::span<const std::byte>)> on_body;
};

// Blocks until the body has ended. Follows no redirects; takes proxies from the
// usual environment variables. Thread-safe.
// Errors: kUnavailable when connecting, the connection or the time fails;
// kCancelled; kInvalidArgument for the URL; kFailedPrecondition for TLS
// verification. No error for any HTTP status.
StatusOr<HttpHead> PerformHttpGet(const HttpGet& request);

// The absolute URL that `reference` (a Location header) means on `base`.
// Errors: kInvalidArgument.
StatusOr<std::string> ResolveUrl(const std::string& base,
                                 const std::string& reference);

// Who a request goes to.
struct UrlOrigin {
  std::string scheme, host, port;

  bool IsLoopback() const;
  bool operator==(const UrlOrigin&) const = default;
};

// Errors: kInvalidArgument unless `url` is http or https with a host and
// without a user or password.
StatusOr<UrlOrigin> OriginOf(const std::string& url);

// `text` with everything but unreserved characters percent-encoded.
std::string PercentEncode(std::string_view text);

}  // namespace tidepool::model
