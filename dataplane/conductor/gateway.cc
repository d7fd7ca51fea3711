#include "dataplane/conductor/gateway.h"

#include <simdjson.h>

#include <atomic>
#include <optional>
#include <utility>

#include "dataplane/base/log.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/random.h"
#include "dataplane/base/version.h"
#include "dataplane/conductor/api_error.h"
#include "dataplane/conductor/completion_task.h"
#include "dataplane/conductor/error_response.h"
#include "dataplane/conductor/json_writer.h"
#include "dataplane/conductor/openai_request.h"
#include "dataplane/conductor/prepared_call.h"
#include "dataplane/conductor/task_pool.h"

namespace tidepool::conductor {

using Endpoint = GatewayMetrics::Endpoint;

namespace {

constexpr size_t kRequestIdBytesMax = 128;
constexpr std::string_view kModelsPrefix = "/v1/models/";

// As header values and log fields can carry it without quoting.
bool IsRequestId(std::string_view id) {
  if (id.empty() || id.size() > kRequestIdBytesMax) return false;
  for (const char c : id)
    if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
          (c >= 'a' && c <= 'z') || c == '-' || c == '_' || c == '.' ||
          c == ':' || c == '/'))
      return false;
  return true;
}

// Messages repeat what clients sent, which must not forge lines of the log.
std::string Quoted(std::string_view text) {
  return JsonWriter().Value(text).Take();
}

struct Route {
  std::string_view path, method;
  Endpoint endpoint;
  bool is_open;  // to everybody
};
constexpr Route kRoutes[] = {
    {"/v1/completions", "POST", Endpoint::kCompletions, false},
    {"/v1/chat/completions", "POST", Endpoint::kChatCompletions, false},
    {"/tokenize", "POST", Endpoint::kTokenize, false},
    {"/detokenize", "POST", Endpoint::kDetokenize, false},
    {"/v1/models", "GET", Endpoint::kModels, false},
    {"/health", "GET", Endpoint::kOther, true},
    {"/ready", "GET", Endpoint::kOther, true},
    {"/version", "GET", Endpoint::kOther, true},
    {"/metrics", "GET", Endpoint::kOther, true},
};
constexpr Route kModelRoute{kModelsPrefix, "GET", Endpoint::kModels, false};

const Route* FindRoute(std::string_view path) {
  for (const Route& route : kRoutes)
    if (route.path == path) return &route;
  return path.starts_with(kModelsPrefix) ? &kModelRoute : nullptr;
}

Status Overloaded() {
  return WithApiDetails(
      ResourceExhausted("too many requests wait to be tokenized"), "",
      "overloaded");
}

void WriteModel(JsonWriter& json, const ServingModel& model,
                std::string_view name) {
  json.BeginObject().Field("id", name).Field("object", "model");
  json.Field("created", model.created()).Field("owned_by", "tidepool");
  json.Field("root", model.names().front()).NullField("parent");
  json.Field("max_model_len", model.max_model_len()).EndObject();
}

std::string TokenizeAnswer(const ServingModel& model,
                           const std::vector<int32_t>& ids, bool with_strings) {
  JsonWriter json;
  json.BeginObject().Field("count", ids.size());
  json.Field("max_model_len", model.max_model_len());
  json.Key("tokens").BeginArray();
  for (const int32_t id : ids) json.Value(id);
  json.EndArray().Key("token_strs");
  if (with_strings) {
    json.BeginArray();
    for (const int32_t id : ids) json.Value(model.tokenizer()->IdToToken(id));
    json.EndArray();
  } else {
    json.Null();
  }
  json.EndObject();
  return json.Take();
}

StatusOr<std::string> Tokenize(const ServingModel& model,
                               std::string_view body) {
  ASSIGN_OR_RETURN(const TokenizeCall call, ParseTokenize(body));
  if (!call.model.empty()) RETURN_IF_ERROR(model.CheckName(call.model));
  std::string text = call.prompt;
  if (call.is_chat) {
    ASSIGN_OR_RETURN(text, model.Render(call.chat));
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                   model.Tokenize(text, call.add_special_tokens,
                                  call.is_chat ? "messages" : "prompt"));
  return TokenizeAnswer(model, ids, call.return_token_strs);
}

StatusOr<std::string> Detokenize(const ServingModel& model,
                                 std::string_view body) {
  ASSIGN_OR_RETURN(const DetokenizeCall call,
                   ParseDetokenize(body, model.limits().vocab_size));
  if (!call.model.empty()) RETURN_IF_ERROR(model.CheckName(call.model));
  if (!model.tokenizer())
    return BadField("tokens",
                    "cannot become text: this model has no tokenizer");
  JsonWriter json;
  json.BeginObject().Field(
      "prompt",
      model.tokenizer()->Decode(call.tokens, /*skip_special_tokens=*/false));
  json.EndObject();
  return json.Take();
}

StatusOr<PreparedCall> ParseAndPrepare(const ServingModel& model,
                                       Endpoint endpoint,
                                       std::string_view body) {
  StatusOr<GenerationCall> call =
      endpoint == Endpoint::kChatCompletions
          ? ParseChat(body, model.limits(), model.sampling_defaults())
          : ParseCompletion(body, model.limits(), model.sampling_defaults());
  RETURN_IF_ERROR(call.status());
  RETURN_IF_ERROR(model.CheckName(call->model));
  return Prepare(*std::move(call), model);
}

}  // namespace

class Gateway::Impl {
 public:
  Impl(const ServingModel& model, Backend& backend, const Clock& clock,
       GatewayOptions options)
      : options_(std::move(options)),
        metrics_(model.names().front()),
        context_{.model = model,
                 .backend = backend,
                 .metrics = metrics_,
                 .clock = clock,
                 .heartbeat_interval = options_.heartbeat_interval,
                 .request_timeout = options_.request_timeout},
        pool_(options_.tokenizer_threads, options_.tokenizer_queue_max) {}

  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);

  void SetHttpStats(std::function<HttpServerStats()> stats) {
    const MutexLock lock(&mutex_);
    http_stats_ = std::move(stats);
  }
  void StartDraining() { draining_ = true; }
  ServingReport Report() const { return metrics_.Report(context_.clock.Now()); }

 private:
  using Exchange = std::shared_ptr<HttpExchange>;

  // What is answered at once, without the pool.
  HttpResponse Answer(const Route& route, std::string_view path) const;
  HttpResponse Models(std::string_view path) const;
  HttpResponse Ready() const;
  HttpResponse Metrics() const;
  // In the pool.
  void Generate(HttpRequest request, CallOrigin origin, Exchange exchange);
  void Convert(const HttpRequest& request, const CallOrigin& origin,
               const Exchange& exchange);
  void Respond(const CallOrigin& origin, const Exchange& exchange,
               HttpResponse response);
  void RespondError(const CallOrigin& origin, const Exchange& exchange,
                    const ApiError& error);

  const GatewayOptions options_;
  GatewayMetrics metrics_;
  const ServingContext context_;
  std::atomic<bool> draining_ = false;
  mutable Mutex mutex_;
  std::function<HttpServerStats()> http_stats_ ABSL_GUARDED_BY(mutex_);
  TaskPool pool_;  // last: its tasks use the rest
};

void Gateway::Impl::Respond(const CallOrigin& origin, const Exchange& exchange,
                            HttpResponse response) {
  metrics_.CountRequest(origin.endpoint, response.status);
  LOG_DEBUG("request id={} peer={} status={}", origin.request_id, origin.peer,
            response.status);
  response.headers.Add("X-Request-Id", origin.request_id);
  exchange->Respond(std::move(response));
}

void Gateway::Impl::RespondError(const CallOrigin& origin,
                                 const Exchange& exchange,
                                 const ApiError& error) {
  metrics_.CountRequest(origin.endpoint, error.status);
  LOG_INFO("request id={} peer={} status={} error={}", origin.request_id,
           origin.peer, error.status, Quoted(error.message));
  exchange->Respond(ErrorResponse(error, origin.request_id));
}

void Gateway::Impl::Handle(HttpRequest request, Exchange exchange) {
  CallOrigin origin{.peer = request.peer, .arrived = context_.clock.Now()};
  const std::string_view given = request.headers.Get("X-Request-Id");
  const bool is_id = given.empty() || IsRequestId(given);
  origin.request_id =
      is_id && !given.empty()
          ? std::string(given)
          : fmt::format("{:016x}{:016x}", SystemRandom64(), SystemRandom64());
  if (!simdjson::validate_utf8(request.path))
    return RespondError(origin, exchange,
                        ErrorOfHttpStatus(400, "the path is not UTF-8"));
  const Route* route = FindRoute(request.path);
  if (!route)
    return RespondError(origin, exchange,
                        ErrorOfHttpStatus(404, "there is nothing here"));
  origin.endpoint = route->endpoint;
  if (!route->is_open &&
      !options_.api_keys.Allows(request.headers.Get("Authorization")))
    return RespondError(
        origin, exchange,
        ToApiError(WithApiDetails(
            Status(Code::kUnauthenticated, "an API key is missing or wrong"),
            "", "invalid_api_key")));
  if (!is_id)
    return RespondError(
        origin, exchange,
        ToApiError(BadField(
            "X-Request-Id",
            fmt::format("must have 1 to {} letters, digits or any of -_.:/",
                        kRequestIdBytesMax))));
  const bool is_get = route->method == "GET";
  if (request.method != route->method && !(is_get && request.method == "HEAD"))
    return RespondError(
        origin, exchange,
        ErrorOfHttpStatus(
            405, fmt::format("only {} is allowed here", route->method)));
  if (is_get) return Respond(origin, exchange, Answer(*route, request.path));

  auto work = std::make_shared<HttpRequest>(std::move(request));
  const bool accepted = pool_.Post([this, work, origin, exchange] {
    const bool generates = origin.endpoint == Endpoint::kCompletions ||
                           origin.endpoint == Endpoint::kChatCompletions;
    generates ? Generate(std::move(*work), origin, exchange)
              : Convert(*work, origin, exchange);
  });
  if (!accepted) RespondError(origin, exchange, ToApiError(Overloaded()));
}

void Gateway::Impl::Generate(HttpRequest request, CallOrigin origin,
                             Exchange exchange) {
  auto prepared = std::make_shared<StatusOr<PreparedCall>>(
      ParseAndPrepare(context_.model, origin.endpoint, request.body));
  HttpExchange* const target = exchange.get();
  target->Post([this, prepared, origin = std::move(origin),
                exchange = std::move(exchange)]() mutable {
    if (!prepared->ok())
      return RespondError(origin, exchange, ToApiError(prepared->status()));
    CompletionTask::Start(context_, std::move(origin), **std::move(prepared),
                          std::move(exchange));
  });
}

void Gateway::Impl::Convert(const HttpRequest& request,
                            const CallOrigin& origin,
                            const Exchange& exchange) {
  StatusOr<std::string> body = origin.endpoint == Endpoint::kTokenize
                                   ? Tokenize(context_.model, request.body)
                                   : Detokenize(context_.model, request.body);
  exchange->Post([this, origin, exchange, body = std::move(body)] {
    if (!body.ok())
      return RespondError(origin, exchange, ToApiError(body.status()));
    Respond(origin, exchange, {.body = *body});
  });
}

HttpResponse Gateway::Impl::Answer(const Route& route,
                                   std::string_view path) const {
  if (route.endpoint == Endpoint::kModels) return Models(path);
  if (path == "/ready") return Ready();
  if (path == "/metrics") return Metrics();
  if (path == "/version")
    return {.body = fmt::format("{{\"version\":\"{}\"}}", kVersion)};
  return {.content_type = "text/plain"};  // /health
}

HttpResponse Gateway::Impl::Models(std::string_view path) const {
  JsonWriter json;
  if (path.starts_with(kModelsPrefix)) {
    const std::string_view name = path.substr(kModelsPrefix.size());
    if (const Status found = context_.model.CheckName(name); !found.ok()) {
      const ApiError error = ToApiError(found);
      return {.status = error.status, .body = error.Json()};
    }
    WriteModel(json, context_.model, name);
    return {.body = json.Take()};
  }
  json.BeginObject().Field("object", "list").Key("data").BeginArray();
  for (const std::string& name : context_.model.names())
    WriteModel(json, context_.model, name);
  json.EndArray().EndObject();
  return {.body = json.Take()};
}

HttpResponse Gateway::Impl::Ready() const {
  const auto fleet = context_.backend.Snapshot();
  JsonWriter json;
  const bool ready = fleet->ready && !draining_;
  json.BeginObject().Field("ready", ready);
  if (draining_)
    json.Field("reason", "draining");
  else if (!fleet->ready)
    json.Field("reason", "no decode worker is ready");
  json.Key("workers").BeginArray();
  for (const WorkerStatus& worker : fleet->workers) {
    json.BeginObject().Field("name", worker.name);
    json.Field("role", RoleName(worker));
    json.Field("connected", worker.connected);
    json.Field("ready", worker.ready);
    if (worker.loading)
      json.Field("load_progress", worker.description.load_progress());
    else if (!worker.connected)
      json.Field("last_failure", worker.last_failure);
    json.EndObject();
  }
  json.EndArray().EndObject();
  return {.status = ready ? 200 : 503, .body = json.Take()};
}

HttpResponse Gateway::Impl::Metrics() const {
  std::function<HttpServerStats()> stats;
  {
    const MutexLock lock(&mutex_);
    stats = http_stats_;
  }
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics_.Render(*context_.backend.Snapshot(),
                                  stats ? stats() : HttpServerStats{})};
}

Gateway::Gateway(const ServingModel& model, Backend& backend,
                 const Clock& clock, GatewayOptions options)
    : impl_(std::make_unique<Impl>(model, backend, clock, std::move(options))) {
}
Gateway::~Gateway() = default;

void Gateway::Handle(HttpRequest request,
                     std::shared_ptr<HttpExchange> exchange) {
  impl_->Handle(std::move(request), std::move(exchange));
}

HttpResponse Gateway::ErrorPage(int status, std::string_view message) {
  return ErrorResponse(ErrorOfHttpStatus(status, message), "");
}

void Gateway::SetHttpStats(std::function<HttpServerStats()> stats) {
  impl_->SetHttpStats(std::move(stats));
}
void Gateway::StartDraining() { impl_->StartDraining(); }
ServingReport Gateway::Report() const { return impl_->Report(); }

}  // namespace tidepool::conductor
