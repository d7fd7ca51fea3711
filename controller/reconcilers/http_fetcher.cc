#include "controller/reconcilers/http_fetcher.h"

#include <curl/curl.h>

namespace tidepool::reconcilers {
namespace {

constexpr long kConnectSeconds = 5;
constexpr long kCallSeconds = 20;
constexpr long kRedirectsMax = 5;

struct Body {
  std::string text;
  size_t bytes_max = 0;
};

size_t Take(char* data, size_t size, size_t count, void* to) {
  auto& body = *static_cast<Body*>(to);
  if (size * count > body.bytes_max - body.text.size()) return 0;
  body.text.append(data, size * count);
  return size * count;
}

class CurlFetcher final : public HttpFetcher {
 public:
  StatusOr<FetchedPage> Get(const std::string& url, const std::string& token,
                            size_t bytes_max) override {
    const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle(
        curl_easy_init(), curl_easy_cleanup);
    if (handle == nullptr) return Unavailable("{}: no memory", url);
    Body body{.bytes_max = bytes_max};
    CURL* const curl = handle.get();
    curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    // Nobody is sent from https to http.
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR,
                     url.starts_with("https:") ? "https" : "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, kRedirectsMax);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, kCallSeconds);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "tidepool-controller");
    if (!token.empty()) {
      // Not shown to hosts that the first one redirects to.
      curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
      curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, token.c_str());
    }
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
    const CURLcode result = curl_easy_perform(curl);
    if (result == CURLE_WRITE_ERROR)
      return ResourceExhausted("{}: more than {} bytes", url, bytes_max);
    if (result != CURLE_OK)
      return Unavailable("{}: {}", url, curl_easy_strerror(result));
    FetchedPage page{.body = std::move(body.text)};
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &page.code);
    return page;
  }
};

}  // namespace

std::unique_ptr<HttpFetcher> MakeCurlFetcher() {
  return std::make_unique<CurlFetcher>();
}

}  // namespace tidepool::reconcilers
