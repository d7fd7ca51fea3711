// Errors as HTTP responses.
#pragma once

#include <string_view>

#include "dataplane/conductor/api_error.h"
#include "dataplane/conductor/http_types.h"

namespace tidepool::conductor {

// Its JSON, with `X-Request-Id` (unless empty), `Retry-After` (jittered) for
// 429 and 503, `WWW-Authenticate` for 401.
HttpResponse ErrorResponse(const ApiError& error, std::string_view request_id);

}  // namespace tidepool::conductor
