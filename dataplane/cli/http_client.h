// What the command line asks of a running Tidepool (or any OpenAI-compatible
// server).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"

namespace tidepool::cli {

struct Endpoint {
  std::string url = "http://127.0.0.1:8000";
  std::string api_key;
};

struct HttpAnswer {
  long status = 0;
  std::string body;
};

// Errors: kUnavailable when no answer came; an HTTP error status is an answer.
StatusOr<HttpAnswer> Get(const Endpoint& endpoint, const std::string& path,
                         Duration timeout);

// How one streamed answer went.
struct StreamReport {
  Seconds ttft{0};  // from sending to the first text
  Seconds tbt{0};   // mean gap between later chunks; 0 with fewer than two
  int chunks = 0;
  std::string finish_reason;
  std::optional<int64_t> prompt_tokens, cached_tokens, completion_tokens;
  // Response headers in lower case, e.g. "x-request-id".
  std::map<std::string, std::string> headers;
};

// POSTs `body` (JSON with `"stream": true`) and calls `on_text` with each piece
// of the first choice as it arrives; `on_text` returning false cancels.
// Errors: the server's own message, with a code that fits its HTTP status;
// kUnavailable when the connection fails or ends before `[DONE]`; kCancelled.
StatusOr<StreamReport> StreamText(
    const Endpoint& endpoint, const std::string& path, const std::string& body,
    const std::function<bool(std::string_view)>& on_text);

}  // namespace tidepool::cli
