#include "controller/kube/http_client.h"

#include <algorithm>
#include <stop_token>
#include <thread>
#include <utility>

#include "controller/kube/api_error.h"
#include "controller/kube/http_exchange.h"
#include "controller/kube/json_fields.h"
#include "controller/kube/json_stream.h"
#include "controller/kube/resource_url.h"
#include "controller/kube/token_source.h"
#include "dataplane/base/notification.h"

namespace tidepool::kube {

using internal::AddQuery;
using internal::HttpAnswer;
using internal::HttpPool;
using internal::HttpRequest;
using internal::ListSplitter;
using internal::ResourcePath;

namespace {

constexpr std::string_view kJsonType = "application/json";

// JSON is YAML.
constexpr std::string_view kApplyType = "application/apply-patch+yaml";

// One call, for messages and metrics.
struct Attempt {
  std::string_view verb;
  const ResourceType& type;
  std::string object;

  std::string ToString() const {
    return fmt::format("{} {}{}{}", verb, type.kind, object.empty() ? "" : " ",
                       object);
  }
};

// Texts of others end up in what we write (messages in conditions), and not all
// of them are UTF-8: that must not keep the rest from being written.
std::string Body(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json DeleteBody(const DeleteOptions& options) {
  Json body = {{"apiVersion", "v1"},
               {"kind", "DeleteOptions"},
               {"propagationPolicy", options.propagation}};
  if (options.grace_period_seconds)
    body["gracePeriodSeconds"] = *options.grace_period_seconds;
  if (options.uid) body["preconditions"]["uid"] = *options.uid;
  if (options.resource_version)
    body["preconditions"]["resourceVersion"] = *options.resource_version;
  return body;
}

StatusOr<EventType> ParseEventType(const std::string& text) {
  if (text == "ADDED") return EventType::kAdded;
  if (text == "MODIFIED") return EventType::kModified;
  if (text == "DELETED") return EventType::kDeleted;
  if (text == "BOOKMARK") return EventType::kBookmark;
  return DataLoss("an event of the unknown type `{}`", text.substr(0, 32));
}

StatusOr<WatchEvent> ParseEvent(std::string_view line,
                                std::string_view attempt) {
  ASSIGN_OR_RETURN(Json parsed, internal::ParseJson(line, attempt, 1));
  const auto type = parsed.find("type");
  const auto object = parsed.find("object");
  if (type == parsed.end() || !type->is_string() || object == parsed.end() ||
      !object->is_object())
    return DataLoss("an event without type or object");
  const auto text = type->get<std::string>();
  if (text == "ERROR") return internal::ApiError(*object, attempt);
  WatchEvent event;
  ASSIGN_OR_RETURN(event.type, ParseEventType(text));
  event.object = std::move(*object);
  return event;
}

}  // namespace

struct HttpClient::Impl {
  Impl(const ClientConfig& config, HttpClientOptions given)
      : options(std::move(given)), tokens(config) {}

  // The answer, whatever its code; 401 and 429 only after what can be done
  // about them.
  StatusOr<HttpAnswer> Exchange(HttpRequest& request);
  // The body of a 2xx answer; every other answer is its error.
  StatusOr<std::string> Call(const Attempt& attempt, HttpRequest& request);
  StatusOr<Json> CallJson(const Attempt& attempt, HttpRequest request);
  StatusOr<Json> ListPage(const Attempt& attempt, const std::string& path,
                          std::stop_token stop,
                          const std::function<void(Json&)>& take);
  Status Watch(const Attempt& attempt, const WatchOptions& watch,
               const std::string& path,
               const std::function<bool(WatchEvent&)>& take);
  TimePoint Deadline() const {
    return Clock::Monotonic().Now() + options.deadline;
  }

  const HttpClientOptions options;
  internal::TokenSource tokens;
  std::unique_ptr<HttpPool> pool;
};

StatusOr<HttpAnswer> HttpClient::Impl::Exchange(HttpRequest& request) {
  const Clock& clock = Clock::Monotonic();
  bool refreshed = false;
  for (int throttled = 0;;) {
    ASSIGN_OR_RETURN(request.token, tokens.Get(clock.Now()));
    ASSIGN_OR_RETURN(HttpAnswer answer, pool->Exchange(request));
    if (answer.code == 401 && !refreshed) {
      refreshed = true;
      if (tokens.Refresh(request.token, clock.Now())) continue;
    }
    if (answer.code != 429 || throttled++ >= options.throttled_retries_max)
      return answer;
    const Duration wait = answer.retry_after.value_or(std::chrono::seconds(1));
    if (wait > request.deadline - clock.Now()) return answer;
    Notification stopped;
    const std::stop_callback wake(request.stop, [&] { stopped.Notify(); });
    if (stopped.WaitFor(wait)) return Status(Code::kCancelled, "cancelled");
  }
}

StatusOr<std::string> HttpClient::Impl::Call(const Attempt& attempt,
                                             HttpRequest& request) {
  const TimePoint began = Clock::Monotonic().Now();
  StatusOr<std::string> result = std::string();
  StatusOr<HttpAnswer> answer = Exchange(request);
  if (!answer.ok()) {
    result = Annotate(answer.status(), attempt.ToString());
  } else if (answer->code < 200 || answer->code >= 300) {
    result = internal::ApiError(answer->code, answer->body, attempt.ToString());
  } else {
    result = std::move(answer->body);
  }
  if (options.on_call)
    options.on_call({.verb = attempt.verb,
                     .type = attempt.type,
                     .code = result.status().code(),
                     .took = Clock::Monotonic().Now() - began});
  return result;
}

StatusOr<Json> HttpClient::Impl::CallJson(const Attempt& attempt,
                                          HttpRequest request) {
  request.deadline = Deadline();
  request.body_bytes_max = options.object_bytes_max;
  ASSIGN_OR_RETURN(const std::string body, Call(attempt, request));
  return internal::ParseJson(body, attempt.ToString());
}

StatusOr<Json> HttpClient::Impl::ListPage(
    const Attempt& attempt, const std::string& path, std::stop_token stop,
    const std::function<void(Json&)>& take) {
  ListSplitter splitter(
      options.object_bytes_max, [&](std::string_view text) -> Status {
        ASSIGN_OR_RETURN(Json object, internal::ParseJson(text, "list item"));
        // Lists say once for all what each of their items is.
        object.emplace("apiVersion", attempt.type.ApiVersion());
        object.emplace("kind", attempt.type.kind);
        take(object);
        return OkStatus();
      });
  HttpRequest request{
      .path = path, .deadline = Deadline(), .stop = std::move(stop)};
  request.take = [&](std::string_view piece) { return splitter.Feed(piece); };
  RETURN_IF_ERROR(Call(attempt, request).status());
  StatusOr<Json> around = splitter.Finish();
  if (!around.ok()) return Annotate(around.status(), attempt.ToString());
  return around;
}

Status HttpClient::Impl::Watch(const Attempt& attempt,
                               const WatchOptions& watch,
                               const std::string& path,
                               const std::function<bool(WatchEvent&)>& take) {
  internal::LineSplitter lines(
      options.object_bytes_max, [&](std::string_view line) -> Status {
        ASSIGN_OR_RETURN(WatchEvent event,
                         ParseEvent(line, attempt.ToString()));
        if (!take(event)) return Status(Code::kCancelled, "ended by its taker");
        return OkStatus();
      });
  HttpRequest request{.path = path, .stop = watch.stop};
  // The server ends it at the timeout; if it does not, we do.
  request.deadline =
      Clock::Monotonic().Now() + watch.timeout + options.deadline;
  request.silence_max = watch.silence_max;
  request.take = [&](std::string_view piece) { return lines.Feed(piece); };
  return Call(attempt, request).status();
}

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::~HttpClient() = default;

StatusOr<std::unique_ptr<HttpClient>> HttpClient::Create(
    const ClientConfig& config, HttpClientOptions options) {
  auto impl = std::make_unique<Impl>(config, std::move(options));
  ASSIGN_OR_RETURN(
      impl->pool,
      HttpPool::Create(config,
                       {.connect_timeout = impl->options.connect_timeout,
                        .idle_max = impl->options.idle_connections_max}));
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(impl)));
}

StatusOr<Json> HttpClient::Get(const ResourceType& type, const ObjectKey& key) {
  return impl_->CallJson({"get", type, key.ToString()},
                         {.path = ResourcePath(type, key.space, key.name)});
}

StatusOr<std::string> HttpClient::List(const ResourceType& type,
                                       const ListOptions& options,
                                       const std::function<void(Json&)>& take) {
  const Attempt attempt{"list", type, options.space};
  std::string next;
  do {
    std::string path = ResourcePath(type, options.space);
    AddQuery(path, "limit", std::to_string(options.limit));
    if (!options.label_selector.empty())
      AddQuery(path, "labelSelector", options.label_selector);
    if (!next.empty()) AddQuery(path, "continue", next);
    ASSIGN_OR_RETURN(const Json page,
                     impl_->ListPage(attempt, path, options.stop, take));
    const Json& metadata = At(page, "metadata");
    std::string token = TextAt(metadata, "continue");
    if (token.empty()) {
      std::string version = TextAt(metadata, "resourceVersion");
      if (version.empty())
        return DataLoss("{}: a list without version", attempt.ToString());
      return version;
    }
    if (token == next)
      return DataLoss("{}: the same page again", attempt.ToString());
    next = std::move(token);
  } while (true);
}

Status HttpClient::Watch(const ResourceType& type, const WatchOptions& options,
                         const std::function<bool(WatchEvent&)>& take) {
  std::string path = ResourcePath(type, options.space);
  AddQuery(path, "watch", "true");
  AddQuery(path, "allowWatchBookmarks", "true");
  AddQuery(path, "resourceVersion", options.resource_version);
  AddQuery(
      path, "timeoutSeconds",
      std::to_string(std::max<int64_t>(
          1,
          std::chrono::ceil<std::chrono::seconds>(options.timeout).count())));
  if (!options.label_selector.empty())
    AddQuery(path, "labelSelector", options.label_selector);
  return impl_->Watch({"watch", type, options.space}, options, path, take);
}

StatusOr<Json> HttpClient::Apply(const ResourceType& type, const ObjectKey& key,
                                 const Json& object,
                                 std::string_view subresource) {
  std::string path = ResourcePath(type, key.space, key.name, subresource);
  AddQuery(path, "fieldManager", kFieldManager);
  AddQuery(path, "force", "true");
  return impl_->CallJson({"apply", type, key.ToString()},
                         {.method = "PATCH",
                          .path = std::move(path),
                          .body = Body(object),
                          .content_type = kApplyType});
}

StatusOr<Json> HttpClient::Create(const ResourceType& type,
                                  std::string_view space, const Json& object) {
  std::string path = ResourcePath(type, space);
  AddQuery(path, "fieldManager", kFieldManager);
  std::string name(space);
  if (const auto it = object.find("metadata");
      it != object.end() && it->is_object())
    name = ObjectKey{name, it->value("name", "")}.ToString();
  return impl_->CallJson({"create", type, name}, {.method = "POST",
                                                  .path = std::move(path),
                                                  .body = Body(object),
                                                  .content_type = kJsonType});
}

StatusOr<Json> HttpClient::Replace(const ResourceType& type,
                                   const ObjectKey& key, const Json& object,
                                   std::string_view subresource) {
  std::string path = ResourcePath(type, key.space, key.name, subresource);
  AddQuery(path, "fieldManager", kFieldManager);
  return impl_->CallJson({"replace", type, key.ToString()},
                         {.method = "PUT",
                          .path = std::move(path),
                          .body = Body(object),
                          .content_type = kJsonType});
}

StatusOr<Json> HttpClient::Patch(const ResourceType& type, const ObjectKey& key,
                                 PatchType patch_type, const Json& patch,
                                 std::string_view subresource) {
  std::string path = ResourcePath(type, key.space, key.name, subresource);
  AddQuery(path, "fieldManager", kFieldManager);
  return impl_->CallJson({"patch", type, key.ToString()},
                         {.method = "PATCH",
                          .path = std::move(path),
                          .body = Body(patch),
                          .content_type = patch_type == PatchType::kMerge
                                              ? "application/merge-patch+json"
                                              : "application/json-patch+json"});
}

Status HttpClient::Delete(const ResourceType& type, const ObjectKey& key,
                          const DeleteOptions& options) {
  return impl_
      ->CallJson({"delete", type, key.ToString()},
                 {.method = "DELETE",
                  .path = ResourcePath(type, key.space, key.name),
                  .body = Body(DeleteBody(options)),
                  .content_type = kJsonType})
      .status();
}

}  // namespace tidepool::kube
