// The worker's HTTP port: /metrics, /health and /ready.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "dataplane/base/status.h"

namespace tidepool::worker {

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Answers GET and HEAD, one connection at a time per thread, on two threads of
// its own; a connection that says nothing is closed after a few seconds.
class HttpEndpoints {
 public:
  // The answer for a path; called on the server's threads.
  using Handler = std::function<HttpAnswer(std::string_view path)>;

  // `port` 0 takes a free one. Errors: kUnavailable (port in use).
  static StatusOr<std::unique_ptr<HttpEndpoints>> Start(const std::string& host,
                                                        uint16_t port,
                                                        Handler handler);
  virtual ~HttpEndpoints() = default;

  virtual uint16_t port() const = 0;
};

}  // namespace tidepool::worker
