// The OpenAI-compatible API over HTTP: routes, authentication, validation.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "dataplane/base/clock.h"
#include "dataplane/conductor/api_keys.h"
#include "dataplane/conductor/backend.h"
#include "dataplane/conductor/gateway_metrics.h"
#include "dataplane/conductor/http_server.h"
#include "dataplane/conductor/http_types.h"
#include "dataplane/conductor/serving_model.h"

namespace tidepool::conductor {

struct GatewayOptions {
  ApiKeys api_keys;
  // Threads that parse, render and tokenize, and calls that may wait for one;
  // beyond: 429.
  int tokenizer_threads = 1;
  size_t tokenizer_queue_max = 1024;
  // Between SSE comments in a pause after the first token.
  std::chrono::milliseconds heartbeat_interval{15'000};
  Duration request_timeout = std::chrono::minutes(10);
};

// Serves
//   POST /v1/completions, /v1/chat/completions, /tokenize, /detokenize
//   GET  /v1/models, /v1/models/{id}
// with an API key where keys are set, and for everybody
//   GET  /health   200 while the process lives
//   GET  /ready    200 if a request could run now, else 503 with the reason
//   GET  /version, /metrics
// docs/api-compatibility.md has the fields. Thread-safe.
class Gateway {
 public:
  // All references must outlive the gateway, and its exchanges must have ended
  // before its end.
  Gateway(const ServingModel& model, Backend& backend, const Clock& clock,
          GatewayOptions options);
  ~Gateway();

  // An HttpHandler.
  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  // An HttpServer::ErrorPage.
  static HttpResponse ErrorPage(int status, std::string_view message);

  // /metrics shows these, too.
  void SetHttpStats(std::function<HttpServerStats()> stats);
  // From now on /ready says 503.
  void StartDraining();
  ServingReport Report() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::conductor
