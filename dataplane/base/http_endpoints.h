// The HTTP port of a process that is no HTTP server otherwise: its probes and
// metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "dataplane/base/status.h"

namespace tidepool {

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Answers GET and HEAD, one request per connection, on a thread of its own.
// Whoever connects and says nothing keeps nobody else from being answered:
// beyond 64 connections the oldest is closed, and so is one that takes over 5
// seconds.
class HttpEndpoints {
 public:
  // The answer for a path, its query left out. Called on the server's thread;
  // must not block.
  using Handler = std::function<HttpAnswer(std::string_view path)>;

  // `host` and `port` as in ListenTcp, and its errors.
  static StatusOr<std::unique_ptr<HttpEndpoints>> Start(const std::string& host,
                                                        uint16_t port,
                                                        Handler handler);
  virtual ~HttpEndpoints() = default;

  virtual uint16_t port() const = 0;
};

}  // namespace tidepool
