// Requests to the hub: redirects, authorization and what its answers mean.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/model/http_get.h"
#include "dataplane/model/hub_download.h"
#include "dataplane/model/part_file.h"

namespace tidepool::model {

// Confined to one thread.
class HubClient {
 public:
  // `options` must outlive the client. Errors: kInvalidArgument.
  static StatusOr<HubClient> Create(const HubOptions& options,
                                    TimePoint deadline);

  // The body of `url`, at most `bytes_max` long, retrying what may pass.
  StatusOr<std::string> GetText(const std::string& url, uint64_t bytes_max,
                                RetryPolicy retry);

  // Completes `part`, going on after the bytes it has, retrying what may pass.
  // `on_bytes` is called as it grows.
  Status Fill(const std::string& url, const HubFile& file, PartFile& part,
              const std::function<void()>& on_bytes);

 private:
  struct Request {
    std::string url;
    uint64_t offset = 0;
    std::string expected_hash;  // compared with what the hub announces
    std::function<Status(const HttpHead&)> on_head;  // of the last response
    std::function<Status(std::span<const std::byte>)> on_body;
  };

  HubClient(const HubOptions& options, UrlOrigin origin, TimePoint deadline);

  // One attempt, following redirects. Sets `retry_after_`.
  Status Fetch(const Request& request);
  StatusOr<HttpHead> FetchOne(const Request& request, const std::string& url);
  Status ErrorOf(const HttpHead& head, const std::string& url);
  StatusOr<std::string> RedirectTarget(const HttpHead& head,
                                       const std::string& url) const;
  Retrier MakeRetrier(RetryPolicy policy) const;

  const HubOptions* options_;
  UrlOrigin origin_;  // of the endpoint
  TimePoint deadline_;
  Duration retry_after_{};  // what the last answer asked for
};

}  // namespace tidepool::model
