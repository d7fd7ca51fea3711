// Errors as OpenAI's clients expect them.
#pragma once

#include <string>
#include <string_view>

#include "dataplane/base/status.h"

namespace tidepool::conductor {

// What {"error": {…}} says, and the HTTP status beside it.
struct ApiError {
  int status = 500;
  std::string message;
  std::string type;   // "invalid_request_error"…
  std::string param;  // the field at fault; "" is null
  std::string code;   // "context_length_exceeded"…; "" is null

  // {"error":{"message":…,"type":…,"param":…,"code":…}}
  std::string Json() const;
};

// `status` that says which field was at fault and with what OpenAI code; both
// travel as payloads and may be "".
Status WithApiDetails(Status status, std::string_view param,
                      std::string_view code);

// A 400 for `param`: "`param` <reason>".
Status BadField(std::string_view param, std::string_view reason);
// A 400 for a field that is known and not served.
Status UnsupportedField(std::string_view param, std::string_view reason);

// kInvalidArgument and kUnimplemented are 400, kUnauthenticated 401, kNotFound
// 404, kResourceExhausted 429, kUnavailable 503, kDeadlineExceeded 504, what
// remains 500.
ApiError ToApiError(const Status& status);

// An error that the HTTP server itself answers.
ApiError ErrorOfHttpStatus(int status, std::string_view message);

}  // namespace tidepool::conductor
