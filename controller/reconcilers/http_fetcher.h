// GET, as the model catalog needs it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "dataplane/base/status.h"

namespace tidepool::reconcilers {

struct FetchedPage {
  long code = 0;  // of HTTP
  std::string body;
};

// Blocks. Thread-safe.
class HttpFetcher {
 public:
  virtual ~HttpFetcher() = default;
  // Any answer of a server is an answer; redirects are followed. `token`, if
  // not empty, is shown to the host of `url` alone. Errors: kUnavailable,
  // kResourceExhausted (more than `bytes_max`).
  virtual StatusOr<FetchedPage> Get(const std::string& url,
                                    const std::string& token,
                                    size_t bytes_max) = 0;
};

// By libcurl, through the proxies that the environment names; a call takes 20 s
// at most.
std::unique_ptr<HttpFetcher> MakeCurlFetcher();

}  // namespace tidepool::reconcilers
