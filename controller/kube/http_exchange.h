// One HTTP request at a time over a connection that is kept.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "controller/kube/client_config.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/status.h"

namespace tidepool::kube::internal {

struct HttpRequest {
  std::string_view method = "GET";
  std::string path;  // with its query
  std::string body;
  std::string_view content_type;
  std::string token;  // "" sends none

  TimePoint deadline;
  // No byte for this long ends it with kDeadlineExceeded.
  Duration silence_max = Duration::max();
  std::stop_token stop;
  // Takes the body of a 2xx answer in pieces, instead of HttpAnswer::body.
  // An error ends the exchange with it.
  std::function<Status(std::string_view)> take;
  size_t body_bytes_max = 8 << 20;
};

struct HttpAnswer {
  long code = 0;
  std::string body;
  std::optional<Duration> retry_after;
};

// Thread-safe; connections go back to the pool between requests.
class HttpPool {
 public:
  struct Options {
    Duration connect_timeout{};
    size_t idle_max = 4;
  };

  // Errors: kInvalidArgument.
  static StatusOr<std::unique_ptr<HttpPool>> Create(const ClientConfig& config,
                                                    const Options& options);
  ~HttpPool();

  // Any answer of a server is an answer. Errors: kUnavailable (no connection,
  // or it broke), kDeadlineExceeded, kCancelled, kResourceExhausted (the body
  // is too long), those of `take`.
  StatusOr<HttpAnswer> Exchange(const HttpRequest& request);

 private:
  struct Target;
  class Channel;

  explicit HttpPool(std::unique_ptr<const Target> target);
  StatusOr<std::unique_ptr<Channel>> TakeChannel();

  const std::unique_ptr<const Target> target_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Channel>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::kube::internal
