#include "dataplane/conductor/error_response.h"

#include "dataplane/base/random.h"

namespace tidepool::conductor {
namespace {

// Spreads the return of clients that were refused together.
constexpr uint64_t kRetryAfterSecondsMax = 4;

}  // namespace

HttpResponse ErrorResponse(const ApiError& error, std::string_view request_id) {
  HttpResponse response{.status = error.status, .body = error.Json()};
  if (!request_id.empty())
    response.headers.Add("X-Request-Id", std::string(request_id));
  if (error.status == 429 || error.status == 503)
    response.headers.Add(
        "Retry-After",
        std::to_string(1 + SystemRandom64() % kRetryAfterSecondsMax));
  if (error.status == 401) response.headers.Add("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace tidepool::conductor
