#include "controller/kube/http_exchange.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace tidepool::kube::internal {
namespace {

using std::chrono::milliseconds;

constexpr size_t kErrorBodyBytesMax = 64 << 10;

struct FreeEasy {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct FreeMulti {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct FreeText {
  void operator()(char* text) const { curl_free(text); }
};
using HeaderList = std::unique_ptr<curl_slist, FreeList>;

TimePoint Now() { return Clock::Monotonic().Now(); }

void AddHeader(HeaderList& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list.get(), line.c_str());
  if (longer == nullptr) return;  // out of memory: the server will object
  (void)list.release();
  list.reset(longer);
}

// What one exchange has got so far; C callbacks write to it.
struct Receiving {
  const HttpRequest& request;
  CURL* easy;
  HttpAnswer answer;
  TimePoint heard_at;
  Status failure;  // why we broke the exchange off

  Status Take(std::string_view piece);
};

Status Receiving::Take(std::string_view piece) {
  heard_at = Now();
  if (answer.code == 0)
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer.code);
  const bool good = answer.code >= 200 && answer.code < 300;
  if (good && request.take) return request.take(piece);
  const size_t bytes_max = good ? request.body_bytes_max : kErrorBodyBytesMax;
  if (piece.size() > bytes_max - answer.body.size()) {
    if (good)
      return ResourceExhausted("the answer is longer than {} bytes", bytes_max);
    piece = piece.substr(0, bytes_max - answer.body.size());
  }
  answer.body.append(piece);
  return OkStatus();
}

size_t OnBody(char* data, size_t size, size_t count, void* user) {
  auto& receiving = *static_cast<Receiving*>(user);
  // No exception may pass through C.
  try {
    receiving.failure = receiving.Take({data, size * count});
  } catch (const std::exception& error) {
    receiving.failure = Internal("taking an answer: {}", error.what());
  }
  return receiving.failure.ok() ? size * count : 0;
}

size_t OnHeader(char* data, size_t size, size_t count, void* user) {
  auto& receiving = *static_cast<Receiving*>(user);
  receiving.heard_at = Now();
  std::string_view line(data, size * count);
  static constexpr std::string_view kRetryAfter = "retry-after:";
  if (line.size() <= kRetryAfter.size() ||
      !std::equal(kRetryAfter.begin(), kRetryAfter.end(), line.begin(),
                  [](char a, char b) { return a == (b | 0x20) || a == b; }))
    return size * count;
  line.remove_prefix(kRetryAfter.size());
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  uint32_t seconds = 0;
  if (std::from_chars(line.data(), line.data() + line.size(), seconds).ec ==
      std::errc())
    receiving.answer.retry_after = std::chrono::seconds(seconds);
  return size * count;
}

}  // namespace

// What all requests share, as libcurl wants it.
struct HttpPool::Target {
  ClientConfig config;
  Options options;
  std::string base;        // the URL's beginning
  std::string connect_to;  // "" or "name:port:host:port"
};

// A connection and what it takes to use it. One exchange at a time.
class HttpPool::Channel {
 public:
  explicit Channel(const Target& target)
      : target_(target), multi_(curl_multi_init()), easy_(curl_easy_init()) {}

  bool valid() const { return multi_ != nullptr && easy_ != nullptr; }
  StatusOr<HttpAnswer> Exchange(const HttpRequest& request);

 private:
  template <typename Value>
  void Set(CURLoption option, Value value) {
    curl_easy_setopt(easy_.get(), option, value);
  }
  void SetBlob(CURLoption option, const std::string& bytes);
  void SetTarget();
  void SetRequest(const HttpRequest& request, const HeaderList& headers,
                  Receiving& receiving);
  Status Drive(const HttpRequest& request, Receiving& receiving);
  Status Ended(CURLcode result, const Receiving& receiving) const;

  const Target& target_;
  // The multi handle owns the connection, so it goes last.
  std::unique_ptr<CURLM, FreeMulti> multi_;
  std::unique_ptr<CURL, FreeEasy> easy_;
  char error_text_[CURL_ERROR_SIZE] = "";
};

void HttpPool::Channel::SetBlob(CURLoption option, const std::string& bytes) {
  if (bytes.empty()) return;
  curl_blob blob{const_cast<char*>(bytes.data()), bytes.size(),
                 CURL_BLOB_NOCOPY};
  Set(option, &blob);
}

void HttpPool::Channel::SetTarget() {
  const ClientConfig& config = target_.config;
  Set(CURLOPT_NOSIGNAL, 1L);
  Set(CURLOPT_PROTOCOLS_STR, "http,https");
  Set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  Set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  // Set even when empty: otherwise the environment names the proxy.
  Set(CURLOPT_PROXY, config.proxy_url.c_str());
  Set(CURLOPT_NOPROXY, "");
  Set(CURLOPT_TCP_KEEPALIVE, 1L);
  Set(CURLOPT_TCP_KEEPIDLE, 15L);
  Set(CURLOPT_TCP_KEEPINTVL, 5L);
  // Each watch has one of both, and the least is enough.
  Set(CURLOPT_BUFFERSIZE, 4096L);
  Set(CURLOPT_UPLOAD_BUFFERSIZE, 16384L);
  Set(CURLOPT_CONNECTTIMEOUT_MS,
      static_cast<long>(
          std::chrono::ceil<milliseconds>(target_.options.connect_timeout)
              .count()));
  if (config.ca_file.empty()) {
    SetBlob(CURLOPT_CAINFO_BLOB, config.ca_pem);
  } else {
    Set(CURLOPT_CAINFO, config.ca_file.c_str());
    Set(CURLOPT_CA_CACHE_TIMEOUT, 0L);
  }
  SetBlob(CURLOPT_SSLCERT_BLOB, config.client_certificate_pem);
  SetBlob(CURLOPT_SSLKEY_BLOB, config.client_key_pem);
  if (config.insecure_skip_tls_verify) {
    Set(CURLOPT_SSL_VERIFYPEER, 0L);
    Set(CURLOPT_SSL_VERIFYHOST, 0L);
  }
  Set(CURLOPT_ERRORBUFFER, error_text_);
}

void HttpPool::Channel::SetRequest(const HttpRequest& request,
                                   const HeaderList& headers,
                                   Receiving& receiving) {
  Set(CURLOPT_URL, (target_.base + request.path).c_str());
  Set(CURLOPT_HTTPHEADER, headers.get());
  if (!request.body.empty()) {
    Set(CURLOPT_POSTFIELDSIZE_LARGE,
        static_cast<curl_off_t>(request.body.size()));
    Set(CURLOPT_POSTFIELDS, request.body.data());
  }
  if (request.method != "GET")
    Set(CURLOPT_CUSTOMREQUEST, std::string(request.method).c_str());
  Set(CURLOPT_WRITEFUNCTION, &OnBody);
  Set(CURLOPT_WRITEDATA, &receiving);
  Set(CURLOPT_HEADERFUNCTION, &OnHeader);
  Set(CURLOPT_HEADERDATA, &receiving);
}

Status HttpPool::Channel::Drive(const HttpRequest& request,
                                Receiving& receiving) {
  while (true) {
    int running = 0;
    if (const CURLMcode code = curl_multi_perform(multi_.get(), &running);
        code != CURLM_OK)
      return Internal("{}", curl_multi_strerror(code));
    if (running == 0) {
      int left = 0;
      const CURLMsg* message = curl_multi_info_read(multi_.get(), &left);
      if (message == nullptr) return Internal("a request ended without result");
      return Ended(message->data.result, receiving);
    }
    if (request.stop.stop_requested())
      return Status(Code::kCancelled, "cancelled");
    const TimePoint now = Now();
    TimePoint wake = request.deadline;
    if (request.silence_max < request.deadline - receiving.heard_at)
      wake = receiving.heard_at + request.silence_max;
    if (now >= wake) {
      if (wake == request.deadline)
        return DeadlineExceeded("no answer in time");
      return DeadlineExceeded("nothing came for {} s",
                              Seconds(request.silence_max).count());
    }
    const auto wait = std::min(std::chrono::ceil<milliseconds>(wake - now),
                               milliseconds(60'000));
    curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(wait.count()),
                    nullptr);
  }
}

Status HttpPool::Channel::Ended(CURLcode result,
                                const Receiving& receiving) const {
  if (!receiving.failure.ok()) return receiving.failure;
  if (result == CURLE_OK) return OkStatus();
  const char* text =
      error_text_[0] != '\0' ? error_text_ : curl_easy_strerror(result);
  return Unavailable("{}", text);
}

StatusOr<HttpAnswer> HttpPool::Channel::Exchange(const HttpRequest& request) {
  HeaderList headers;
  AddHeader(headers, "Accept: application/json");
  AddHeader(headers, "User-Agent: tidepool-controller");
  AddHeader(headers, "Expect:");  // bodies are small: do not ask first
  if (!request.content_type.empty())
    AddHeader(headers, fmt::format("Content-Type: {}", request.content_type));
  if (!request.token.empty())
    AddHeader(headers, fmt::format("Authorization: Bearer {}", request.token));
  HeaderList connect_to;
  if (!target_.connect_to.empty()) AddHeader(connect_to, target_.connect_to);

  Receiving receiving{
      .request = request, .easy = easy_.get(), .heard_at = Now()};
  error_text_[0] = '\0';
  curl_easy_reset(easy_.get());
  SetTarget();
  if (connect_to != nullptr) Set(CURLOPT_CONNECT_TO, connect_to.get());
  SetRequest(request, headers, receiving);
  if (const CURLMcode code = curl_multi_add_handle(multi_.get(), easy_.get());
      code != CURLM_OK)
    return Internal("{}", curl_multi_strerror(code));
  Status ended;
  {
    const std::stop_callback wake(request.stop,
                                  [this] { curl_multi_wakeup(multi_.get()); });
    ended = Drive(request, receiving);
  }
  curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE,
                    &receiving.answer.code);
  curl_multi_remove_handle(multi_.get(), easy_.get());
  RETURN_IF_ERROR(ended);
  return std::move(receiving.answer);
}

HttpPool::HttpPool(std::unique_ptr<const Target> target)
    : target_(std::move(target)) {}
HttpPool::~HttpPool() = default;

StatusOr<std::unique_ptr<HttpPool>> HttpPool::Create(const ClientConfig& config,
                                                     const Options& options) {
  static std::once_flag once;
  std::call_once(once, [] {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    // TLS writes to sockets that the server has closed.
    std::signal(SIGPIPE, SIG_IGN);
  });

  auto target = std::make_unique<Target>();
  target->config = config;
  target->options = options;
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  if (curl_url_set(url.get(), CURLUPART_URL, config.server.c_str(), 0) !=
      CURLUE_OK)
    return InvalidArgument("server `{}` is no URL", config.server);
  const auto part = [&](CURLUPart which, unsigned flags) {
    char* text = nullptr;
    curl_url_get(url.get(), which, &text, flags);
    const std::unique_ptr<char, FreeText> owned(text);
    return std::string(text == nullptr ? "" : text);
  };
  const std::string scheme = part(CURLUPART_SCHEME, 0);
  if (scheme != "https" && scheme != "http")
    return InvalidArgument("server `{}` is neither https nor http",
                           config.server);
  if (scheme == "http" && !(config.token.empty() && config.token_file.empty()))
    return InvalidArgument("server `{}`: a token is not sent without TLS",
                           config.server);
  const std::string host = part(CURLUPART_HOST, 0);
  const std::string port = part(CURLUPART_PORT, CURLU_DEFAULT_PORT);
  std::string path = part(CURLUPART_PATH, 0);
  while (!path.empty() && path.back() == '/') path.pop_back();
  std::string name = host;
  if (!config.tls_server_name.empty() && config.tls_server_name != host) {
    name = config.tls_server_name;
    target->connect_to = fmt::format("{}:{}:{}:{}", name, port, host, port);
  }
  target->base = fmt::format("{}://{}:{}{}", scheme, name, port, path);
  return std::unique_ptr<HttpPool>(new HttpPool(std::move(target)));
}

StatusOr<std::unique_ptr<HttpPool::Channel>> HttpPool::TakeChannel() {
  {
    const MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Channel> channel = std::move(idle_.back());
      idle_.pop_back();
      return channel;
    }
  }
  auto channel = std::make_unique<Channel>(*target_);
  if (!channel->valid()) return ResourceExhausted("no memory for a connection");
  return channel;
}

StatusOr<HttpAnswer> HttpPool::Exchange(const HttpRequest& request) {
  if (request.stop.stop_requested())
    return Status(Code::kCancelled, "cancelled");
  ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel, TakeChannel());
  StatusOr<HttpAnswer> answer = channel->Exchange(request);
  const MutexLock lock(&mutex_);
  if (idle_.size() < target_->options.idle_max)
    idle_.push_back(std::move(channel));
  return answer;
}

}  // namespace tidepool::kube::internal
