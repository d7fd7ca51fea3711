#include "dataplane/model/hub_client.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "dataplane/base/random.h"

namespace tidepool::model {
namespace {

constexpr int kMaxRedirects = 5;
constexpr int64_t kMaxRetryAfterSeconds = 300;

std::string_view WithoutQuotes(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
    etag = etag.substr(1, etag.size() - 2);
  return etag;
}

// Without its query, which may hold a signature.
std::string_view Shown(std::string_view url) {
  return url.substr(0, url.find('?'));
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return number;
}

// "bytes FIRST-LAST/TOTAL" fits what was asked for.
bool ContinuesAt(std::string_view content_range, uint64_t offset,
                 uint64_t size) {
  constexpr std::string_view kUnit = "bytes ";
  if (!content_range.starts_with(kUnit)) return false;
  content_range.remove_prefix(kUnit.size());
  const size_t dash = content_range.find('-');
  const size_t slash = content_range.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos)
    return false;
  const std::string_view total = content_range.substr(slash + 1);
  return ParseNumber(content_range.substr(0, dash)) == offset &&
         (total == "*" || ParseNumber(total) == size);
}

// What stops a token from being a header of its own, or more than one.
bool IsToken(std::string_view token) {
  return std::ranges::all_of(
      token, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

StatusOr<HubClient> HubClient::Create(const HubOptions& options,
                                      TimePoint deadline) {
  StatusOr<UrlOrigin> origin = OriginOf(options.endpoint);
  if (!origin.ok()) return Annotate(origin.status(), "HF_ENDPOINT");
  if (options.endpoint.find_first_of("?#") != std::string::npos)
    return InvalidArgument("HF_ENDPOINT: {:?} has a query", options.endpoint);
  if (!IsToken(options.token)) {
    return InvalidArgument(
        "HF_TOKEN: holds a space, a line break or another character that no "
        "token has");
  }
  if (!options.token.empty() && origin->scheme != "https" &&
      !origin->IsLoopback()) {
    return InvalidArgument(
        "HF_ENDPOINT: {:?} would carry HF_TOKEN over plain HTTP",
        options.endpoint);
  }
  return HubClient(options, *std::move(origin), deadline);
}

HubClient::HubClient(const HubOptions& options, UrlOrigin origin,
                     TimePoint deadline)
    : options_(&options), origin_(std::move(origin)), deadline_(deadline) {}

Retrier HubClient::MakeRetrier(RetryPolicy policy) const {
  return Retrier(policy, *options_->clock, deadline_, options_->stop,
                 options_->wait, SystemRandom64());
}

StatusOr<std::string> HubClient::GetText(const std::string& url,
                                         uint64_t bytes_max,
                                         RetryPolicy retry) {
  Retrier retrier = MakeRetrier(retry);
  std::string text;
  Request request{.url = url};
  request.on_body = [&](std::span<const std::byte> bytes) -> Status {
    if (bytes.size() > bytes_max - text.size()) {
      return ResourceExhausted("GET {}: the answer is over {} bytes", url,
                               bytes_max);
    }
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return OkStatus();
  };
  while (true) {
    text.clear();
    const Status status = Fetch(request);
    if (status.ok()) return text;
    RETURN_IF_ERROR(retrier.Next(status, retry_after_, false));
  }
}

Status HubClient::Fill(const std::string& url, const HubFile& file,
                       PartFile& part, const std::function<void()>& on_bytes) {
  Retrier retrier = MakeRetrier(options_->retry);
  Request request{.url = url, .expected_hash = file.hash};
  request.on_head = [&](const HttpHead& head) -> Status {
    if (head.status == 206 &&
        ContinuesAt(head.Header("content-range"), part.size(), file.size)) {
      return OkStatus();
    }
    // The server starts over, or somewhere we did not ask for.
    if (part.size() > 0) RETURN_IF_ERROR(part.Restart());
    if (head.status == 200) return OkStatus();
    return Unavailable("GET {}: answered with range {:?}", url,
                       head.Header("content-range"));
  };
  request.on_body = [&](std::span<const std::byte> bytes) -> Status {
    RETURN_IF_ERROR(part.Append(bytes));
    on_bytes();
    return OkStatus();
  };
  while (!part.complete()) {
    const uint64_t before = part.size();
    request.offset = before;
    Status status = Fetch(request);
    if (status.ok() && part.complete()) return OkStatus();
    if (status.ok()) {
      status = Unavailable("GET {}: ended after {} of {} bytes", url,
                           part.size(), file.size);
    }
    if (status.code() == Code::kOutOfRange) {
      RETURN_IF_ERROR(part.Restart());
      status = Unavailable("{}", MessageOf(status));
    }
    RETURN_IF_ERROR(retrier.Next(status, retry_after_, part.size() > before));
  }
  return OkStatus();
}

Status HubClient::Fetch(const Request& request) {
  std::string url = request.url;
  retry_after_ = Duration::zero();
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    ASSIGN_OR_RETURN(const HttpHead head, FetchOne(request, url));
    if (head.status == 200 || head.status == 206) return OkStatus();
    if (!head.IsRedirect()) return ErrorOf(head, url);
    ASSIGN_OR_RETURN(url, RedirectTarget(head, url));
  }
  return FailedPrecondition("GET {}: more than {} redirects", request.url,
                            kMaxRedirects);
}

StatusOr<HttpHead> HubClient::FetchOne(const Request& request,
                                       const std::string& url) {
  const TimePoint now = options_->clock->Now();
  if (now >= deadline_) {
    return MakeError(Code::kDeadlineExceeded, "GET {}: no time left",
                     request.url);
  }
  ASSIGN_OR_RETURN(const UrlOrigin origin, OriginOf(url));
  const bool is_endpoint = origin == origin_;
  HttpGet get{.url = url,
              .connect_timeout = options_->connect_timeout,
              .stall_timeout = options_->stall_timeout,
              .timeout = deadline_ - now,
              .stop = options_->stop,
              .on_body = request.on_body};
  if (is_endpoint && !options_->token.empty())
    get.headers.push_back("Authorization: Bearer " + options_->token);
  if (request.offset > 0)
    get.headers.push_back(fmt::format("Range: bytes={}-", request.offset));
  get.on_head = [&](const HttpHead& head) -> Status {
    // Only the hub's own word counts: storage behind it has other tags.
    const std::string_view announced =
        WithoutQuotes(head.Header("x-linked-etag"));
    if (is_endpoint && !announced.empty() && !request.expected_hash.empty() &&
        announced != request.expected_hash) {
      return DataLoss("GET {}: the hub offers {}, but listed {}", request.url,
                      announced, request.expected_hash);
    }
    const bool has_body = head.status == 200 || head.status == 206;
    return has_body && request.on_head ? request.on_head(head) : OkStatus();
  };
  return PerformHttpGet(get);
}

Status HubClient::ErrorOf(const HttpHead& head, const std::string& url) {
  const std::string_view shown = Shown(url);
  switch (head.status) {
    case 401:
    case 403:
      return MakeError(Code::kPermissionDenied,
                       "GET {}: answered {}: the repository does not exist, is "
                       "private, or its terms were not accepted; HF_TOKEN {}",
                       shown, head.status,
                       options_->token.empty() ? "is not set" : "was sent");
    case 404:
      return NotFound("GET {}: no such repository, revision or file", shown);
    case 416:
      return MakeError(Code::kOutOfRange, "GET {}: answered 416", shown);
    default:
      break;
  }
  const bool may_pass = head.status == 408 || head.status == 425 ||
                        head.status == 429 || head.status >= 500;
  if (!may_pass)
    return FailedPrecondition("GET {}: answered {}", shown, head.status);
  if (const auto seconds = ParseNumber(head.Header("retry-after"))) {
    retry_after_ = std::chrono::seconds(
        std::min<uint64_t>(*seconds, kMaxRetryAfterSeconds));
  }
  return Unavailable("GET {}: answered {}", shown, head.status);
}

StatusOr<std::string> HubClient::RedirectTarget(const HttpHead& head,
                                                const std::string& url) const {
  const std::string location(head.Header("location"));
  if (location.empty()) {
    return FailedPrecondition("GET {}: answered {} without a location",
                              Shown(url), head.status);
  }
  ASSIGN_OR_RETURN(std::string target, ResolveUrl(url, location));
  ASSIGN_OR_RETURN(const UrlOrigin origin, OriginOf(target));
  if (origin_.scheme == "https" && origin.scheme != "https") {
    return FailedPrecondition("GET {}: redirected to plain HTTP on {}",
                              Shown(url), origin.host);
  }
  return target;
}

}  // namespace tidepool::model
