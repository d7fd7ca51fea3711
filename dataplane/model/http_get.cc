#include "dataplane/model/http_get.h"

#include <arpa/inet.h>
#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

#include "dataplane/base/check.h"
#include "dataplane/base/version.h"

namespace tidepool::model {
namespace {

constexpr uint64_t kMaxDroppedBody = 1 << 20;
constexpr size_t kMaxHeaders = 200;

template <auto Free>
struct Freer {
  void operator()(auto* pointer) const { Free(pointer); }
};
using CurlHandle = std::unique_ptr<CURL, Freer<curl_easy_cleanup>>;
using CurlUrl = std::unique_ptr<CURLU, Freer<curl_url_cleanup>>;
using CurlString = std::unique_ptr<char, Freer<curl_free>>;
using CurlList = std::unique_ptr<curl_slist, Freer<curl_slist_free_all>>;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// The state of one exchange, filled by libcurl's callbacks.
class Exchange {
 public:
  explicit Exchange(const HttpGet& request)
      : request_(request),
        shown_url_(request.url.substr(0, request.url.find('?'))),
        handle_(curl_easy_init()) {}

  StatusOr<HttpHead> Run() {
    CHECK(handle_ != nullptr);
    RETURN_IF_ERROR(SetOptions());
    const CURLcode code = curl_easy_perform(handle_.get());
    RETURN_IF_ERROR(callback_status_);
    if (code != CURLE_OK) return ErrorOf(code);
    return std::move(head_);
  }

 private:
  template <typename Value>
  void Set(CURLoption option, Value value) {
    CHECK(curl_easy_setopt(handle_.get(), option, value) == CURLE_OK);
  }

  static long Milliseconds(Duration duration) {
    using std::chrono::milliseconds;
    return std::max<long>(
        1, std::chrono::duration_cast<milliseconds>(duration).count());
  }

  Status SetOptions() {
    for (const std::string& header : request_.headers) {
      if (header.find_first_of("\r\n") != std::string::npos)
        return InvalidArgument("a header to {} holds a line break", shown_url_);
      headers_.reset(curl_slist_append(headers_.release(), header.c_str()));
    }
    Set(CURLOPT_URL, request_.url.c_str());
    Set(CURLOPT_PROTOCOLS_STR, "http,https");
    Set(CURLOPT_HTTPHEADER, headers_.get());
    Set(CURLOPT_USERAGENT, fmt::format("tidepool/{}", kVersion).c_str());
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    Set(CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(request_.connect_timeout));
    Set(CURLOPT_TIMEOUT_MS, Milliseconds(request_.timeout));
    Set(CURLOPT_ERRORBUFFER, error_text_);
    Set(CURLOPT_NOPROGRESS, 0L);
    Set(CURLOPT_XFERINFODATA, this);
    Set(CURLOPT_XFERINFOFUNCTION, &Exchange::OnProgress);
    Set(CURLOPT_HEADERDATA, this);
    Set(CURLOPT_HEADERFUNCTION, &Exchange::OnHeader);
    Set(CURLOPT_WRITEDATA, this);
    Set(CURLOPT_WRITEFUNCTION, &Exchange::OnBody);
    return OkStatus();
  }

  // libcurl takes any count but the one it passed as "stop".
  size_t Keep(Status status, size_t size) {
    callback_status_ = std::move(status);
    return callback_status_.ok() ? size : size + 1;
  }

  // Comes about once a second while nothing happens. libcurl's own limit on
  // slowness looks at an average, which forgives the first seconds of silence.
  static int OnProgress(void* self, curl_off_t, curl_off_t received, curl_off_t,
                        curl_off_t) {
    auto* exchange = static_cast<Exchange*>(self);
    const TimePoint now = Clock::Monotonic().Now();
    if (received != exchange->received_) {
      exchange->received_ = received;
      exchange->last_byte_ = now;
    }
    exchange->stalled_ =
        now - exchange->last_byte_ > exchange->request_.stall_timeout;
    return exchange->stalled_ || exchange->request_.stop.stop_requested();
  }
  static size_t OnHeader(char* data, size_t, size_t size, void* self) {
    auto* exchange = static_cast<Exchange*>(self);
    return exchange->Keep(exchange->TakeHeader({data, size}), size);
  }
  static size_t OnBody(char* data, size_t, size_t size, void* self) {
    auto* exchange = static_cast<Exchange*>(self);
    return exchange->Keep(
        exchange->TakeBody(std::as_bytes(std::span(data, size))), size);
  }

  Status TakeHeader(std::string_view line) {
    if (head_complete_) return OkStatus();  // a trailer
    if (line.starts_with("HTTP/")) {
      long status = 0;
      curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
      head_ = HttpHead{.status = static_cast<int>(status)};
      return OkStatus();
    }
    const std::string_view content = Trim(line);
    if (content.empty()) {
      if (head_.status < 200) return OkStatus();  // 100 Continue and the like
      head_complete_ = true;
      return request_.on_head ? request_.on_head(head_) : OkStatus();
    }
    const size_t colon = content.find(':');
    if (colon == std::string_view::npos) return OkStatus();
    if (head_.headers.size() == kMaxHeaders)
      return Unavailable("{}: more than {} headers", shown_url_, kMaxHeaders);
    head_.headers.insert_or_assign(
        Lower(Trim(content.substr(0, colon))),
        std::string(Trim(content.substr(colon + 1))));
    return OkStatus();
  }

  Status TakeBody(std::span<const std::byte> piece) {
    if (head_.status == 200 || head_.status == 206)
      return request_.on_body ? request_.on_body(piece) : OkStatus();
    dropped_ += piece.size();
    if (dropped_ > kMaxDroppedBody) {
      return Unavailable("{}: answer {} with an endless body", shown_url_,
                         head_.status);
    }
    return OkStatus();
  }

  Status ErrorOf(CURLcode code) const {
    const std::string reason =
        error_text_[0] != '\0' ? error_text_ : curl_easy_strerror(code);
    switch (code) {
      case CURLE_ABORTED_BY_CALLBACK:
        if (stalled_) {
          return Unavailable("GET {}: silent for {} s", shown_url_,
                             Seconds(request_.stall_timeout).count());
        }
        return MakeError(Code::kCancelled, "GET {}: cancelled", shown_url_);
      case CURLE_URL_MALFORMAT:
      case CURLE_UNSUPPORTED_PROTOCOL:
        return InvalidArgument("GET {}: {}", shown_url_, reason);
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
        return FailedPrecondition("GET {}: {}", shown_url_, reason);
      default:
        return Unavailable("GET {}: {}", shown_url_, reason);
    }
  }

  const HttpGet& request_;
  const std::string shown_url_;  // a query may hold a signature
  CurlHandle handle_;
  CurlList headers_;
  char error_text_[CURL_ERROR_SIZE] = "";
  HttpHead head_;
  bool head_complete_ = false;
  uint64_t dropped_ = 0;
  curl_off_t received_ = 0;
  TimePoint last_byte_ = Clock::Monotonic().Now();
  bool stalled_ = false;
  Status callback_status_;
};

std::string Part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  return CurlString(text).get();
}

StatusOr<CurlUrl> ParseUrl(const std::string& text) {
  CurlUrl url(curl_url());
  CHECK(url != nullptr);
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK)
    return InvalidArgument("{:?} is not a URL", text);
  return url;
}

}  // namespace

std::string_view HttpHead::Header(std::string_view name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? std::string_view() : it->second;
}

bool HttpHead::IsRedirect() const {
  return status == 301 || status == 302 || status == 303 || status == 307 ||
         status == 308;
}

StatusOr<HttpHead> PerformHttpGet(const HttpGet& request) {
  // Once per process, before any handle, as libcurl asks.
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  CHECK(global == CURLE_OK);
  return Exchange(request).Run();
}

StatusOr<std::string> ResolveUrl(const std::string& base,
                                 const std::string& reference) {
  ASSIGN_OR_RETURN(const CurlUrl url, ParseUrl(base));
  if (curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), 0) !=
      CURLUE_OK) {
    return InvalidArgument("{:?} is not a URL", reference);
  }
  return Part(url.get(), CURLUPART_URL);
}

bool UrlOrigin::IsLoopback() const {
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1)
    return ntohl(address.s_addr) >> 24 == 127;
  return host == "localhost" || host == "[::1]";
}

StatusOr<UrlOrigin> OriginOf(const std::string& text) {
  ASSIGN_OR_RETURN(const CurlUrl url, ParseUrl(text));
  UrlOrigin origin{.scheme = Lower(Part(url.get(), CURLUPART_SCHEME)),
                   .host = Lower(Part(url.get(), CURLUPART_HOST)),
                   .port = Part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  if (origin.scheme != "http" && origin.scheme != "https")
    return InvalidArgument("{:?} is neither http nor https", text);
  if (origin.host.empty()) return InvalidArgument("{:?} names no host", text);
  if (!Part(url.get(), CURLUPART_USER).empty() ||
      !Part(url.get(), CURLUPART_PASSWORD).empty()) {
    return InvalidArgument("a URL on {} holds a user or password", origin.host);
  }
  return origin;
}

std::string PercentEncode(std::string_view text) {
  std::string encoded;
  for (const unsigned char c : text) {
    if (std::isalnum(c) || std::string_view("-._~").find(static_cast<char>(
                               c)) != std::string_view::npos) {
      encoded.push_back(static_cast<char>(c));
    } else {
      encoded += fmt::format("%{:02X}", c);
    }
  }
  return encoded;
}

}  // namespace tidepool::model
