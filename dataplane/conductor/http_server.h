// An HTTP/1.1 server with a bound on everything a client controls.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/conductor/http_types.h"

namespace tidepool::conductor {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  int threads = 1;

  // Connections beyond are answered 503 and closed, but for one request each of
  // `probe_paths` on at most kProbeConnections: who looks whether this lives
  // shall not end it for being busy.
  int64_t connections_max = 16384;
  std::vector<std::string> probe_paths;
  static constexpr int64_t kProbeConnections = 64;
  uint32_t header_bytes_max = 32 << 10;  // beyond: 431
  uint64_t body_bytes_max = 32 << 20;    // beyond: 413
  // Of all requests, as far as they have arrived, until they are answered;
  // beyond: 503.
  uint64_t total_body_bytes_max = 1 << 30;
  // Unsent bytes of one stream; beyond, the client is cut.
  uint64_t write_queue_bytes_max = 1 << 20;

  std::chrono::milliseconds idle_timeout{75'000};    // between requests: close
  std::chrono::milliseconds header_timeout{10'000};  // for all of it: 408
  std::chrono::milliseconds body_timeout{60'000};    // for all of it: 408
  // Without the client taking a byte: it is cut.
  std::chrono::milliseconds write_timeout{30'000};
};

// Figures for /metrics; each is monotonic or a level.
struct HttpServerStats {
  int64_t connections = 0;
  int64_t connections_refused_total = 0;
  int64_t slow_readers_cut_total = 0;
};

// Speaks keep-alive and pipelining (answers in order, one request at a time
// per connection), chunked bodies both ways and `Expect: 100-continue`.
//
// A client's leaving is noticed while its request is worked on, also when it
// only closes its sending side.
//
// Each connection belongs to one of `threads` threads, which the server owns.
class HttpServer {
 public:
  // Makes the body of an error that the server itself answers (400, 408, 413,
  // 431, 500, 503).
  using ErrorPage =
      std::function<HttpResponse(int status, std::string_view message)>;

  // Binds and listens; nothing is accepted before Start.
  // Errors: those of ListenTcp.
  static StatusOr<std::unique_ptr<HttpServer>> Listen(
      const HttpServerOptions& options, HttpHandler handler,
      ErrorPage error_page);

  // Closes what is open and joins the threads.
  ~HttpServer();

  void Start();
  uint16_t port() const;
  HttpServerStats stats() const;

  // Stops accepting, closes idle connections, lets running answers end and
  // closes their connections. True once no connection is left, false after
  // `timeout` (then the destructor cuts them).
  bool Drain(std::chrono::milliseconds timeout);

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::conductor
