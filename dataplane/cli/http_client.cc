#include "dataplane/cli/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

namespace tidepool::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kAnswerBytesMax = 16 << 20;
constexpr size_t kLineBytesMax = 4 << 20;

class Curl {
 public:
  Curl() : handle_(curl_easy_init()) {}
  ~Curl() {
    curl_slist_free_all(headers_);
    curl_easy_cleanup(handle_);
  }
  Curl(const Curl&) = delete;
  Curl& operator=(const Curl&) = delete;

  CURL* get() const { return handle_; }
  void Prepare(const Endpoint& endpoint, const std::string& path) {
    std::string url = endpoint.url;
    while (url.ends_with('/')) url.pop_back();
    curl_easy_setopt(handle_, CURLOPT_URL, (url + path).c_str());
    curl_easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle_, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(handle_, CURLOPT_ERRORBUFFER, error_);
    if (!endpoint.api_key.empty())
      AddHeader("Authorization: Bearer " + endpoint.api_key);
  }
  void AddHeader(const std::string& header) {
    headers_ = curl_slist_append(headers_, header.c_str());
    curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, headers_);
  }
  long status() const {
    long status = 0;
    curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
    return status;
  }
  Status ErrorOf(CURLcode code, const Endpoint& endpoint) const {
    return Unavailable("{}: {}", endpoint.url,
                       error_[0] != 0 ? error_ : curl_easy_strerror(code));
  }

 private:
  CURL* handle_;
  curl_slist* headers_ = nullptr;
  char error_[CURL_ERROR_SIZE] = {};
};

size_t Append(char* data, size_t, size_t size, void* body_pointer) {
  auto& body = *static_cast<std::string*>(body_pointer);
  if (body.size() + size > kAnswerBytesMax) return 0;
  body.append(data, size);
  return size;
}

Code CodeOfHttp(long status) {
  switch (status) {
    case 400:
      return Code::kInvalidArgument;
    case 401:
      return Code::kUnauthenticated;
    case 404:
      return Code::kNotFound;
    case 429:
      return Code::kResourceExhausted;
    default:
      return status >= 500 ? Code::kUnavailable : Code::kUnknown;
  }
}

std::string MessageOfErrorBody(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error")) {
    const Json& error = json["error"];
    if (error.is_object() && error.contains("message") &&
        error["message"].is_string())
      return error["message"].get<std::string>();
  }
  return body.substr(0, 500);
}

// Turns the bytes of an answer into server-sent events, and those into text.
class StreamReader {
 public:
  StreamReader(CURL* curl, const std::function<bool(std::string_view)>& on_text)
      : curl_(curl),
        on_text_(on_text),
        started_(Clock::Monotonic().Now()),
        last_(started_) {}

  static size_t OnHeader(char* data, size_t, size_t size, void* self) {
    static_cast<StreamReader*>(self)->TakeHeader({data, size});
    return size;
  }
  static size_t OnBody(char* data, size_t, size_t size, void* self) {
    return static_cast<StreamReader*>(self)->TakeBody({data, size}) ? size : 0;
  }

  // The outcome once the transfer ended with `code`.
  StatusOr<StreamReport> Finish(const Status& transfer, long http_status) {
    RETURN_IF_ERROR(failure_);
    if (http_status >= 400)
      return MakeError(CodeOfHttp(http_status), "HTTP {}: {}", http_status,
                       MessageOfErrorBody(buffer_));
    RETURN_IF_ERROR(transfer);
    if (!done_) return Unavailable("the stream ended before [DONE]");
    if (report_.chunks > 1)
      report_.tbt = Seconds(last_ - first_) / (report_.chunks - 1);
    return std::move(report_);
  }

 private:
  void TakeHeader(std::string_view line) {
    const size_t colon = line.find(':');
    if (colon == line.npos || report_.headers.size() > 100) return;
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return std::tolower(c); });
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    while (value.ends_with('\r') || value.ends_with('\n'))
      value.remove_suffix(1);
    report_.headers[name] = value;
  }

  bool TakeBody(std::string_view data) {
    if (buffer_.size() + data.size() > kLineBytesMax) {
      failure_ =
          Unavailable("the answer has a line over {} bytes", kLineBytesMax);
      return false;
    }
    buffer_ += data;
    long status = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400) return true;  // one JSON error, read whole
    size_t begin = 0;
    for (size_t end; (end = buffer_.find('\n', begin)) != buffer_.npos;
         begin = end + 1) {
      std::string_view line =
          std::string_view(buffer_).substr(begin, end - begin);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.starts_with("data:") && !TakeEvent(line.substr(5))) return false;
    }
    buffer_.erase(0, begin);
    return true;
  }

  bool TakeEvent(std::string_view data) {
    while (data.starts_with(' ')) data.remove_prefix(1);
    if (data == "[DONE]") {
      done_ = true;
      return true;
    }
    const Json event = Json::parse(data, nullptr, false);
    if (!event.is_object()) {
      failure_ = Internal("an event of the stream is not a JSON object");
      return false;
    }
    try {
      if (event.contains("error")) {
        failure_ = Unavailable("{}", MessageOfErrorBody(std::string(data)));
        return false;
      }
      return TakeChunk(event);
    } catch (const Json::exception& error) {
      failure_ = Internal("an event of the stream: {}", error.what());
      return false;
    }
  }

  bool TakeChunk(const Json& chunk) {
    if (const auto usage = chunk.find("usage");
        usage != chunk.end() && usage->is_object()) {
      report_.prompt_tokens = usage->at("prompt_tokens").get<int64_t>();
      report_.completion_tokens = usage->at("completion_tokens").get<int64_t>();
      if (usage->contains("prompt_tokens_details") &&
          usage->at("prompt_tokens_details").is_object())
        report_.cached_tokens =
            usage->at("prompt_tokens_details").value("cached_tokens", 0);
    }
    for (const Json& choice : chunk.value("choices", Json::array())) {
      if (choice.value("index", 0) != 0) continue;
      if (choice.contains("finish_reason") &&
          choice["finish_reason"].is_string())
        report_.finish_reason = choice["finish_reason"];
      std::string text;
      if (choice.contains("text")) {
        text = choice["text"].get<std::string>();
      } else if (choice.contains("delta") &&
                 choice["delta"].contains("content") &&
                 choice["delta"]["content"].is_string()) {
        text = choice["delta"]["content"].get<std::string>();
      }
      if (text.empty()) continue;
      last_ = Clock::Monotonic().Now();
      if (report_.chunks++ == 0) {
        first_ = last_;
        report_.ttft = last_ - started_;
      }
      if (on_text_(text)) continue;
      failure_ = MakeError(Code::kCancelled, "cancelled");
      return false;
    }
    return true;
  }

  CURL* curl_;
  const std::function<bool(std::string_view)>& on_text_;
  const TimePoint started_;
  TimePoint first_, last_;
  std::string buffer_;
  StreamReport report_;
  Status failure_;
  bool done_ = false;
};

}  // namespace

StatusOr<HttpAnswer> Get(const Endpoint& endpoint, const std::string& path,
                         Duration timeout) {
  Curl curl;
  curl.Prepare(endpoint, path);
  HttpAnswer answer;
  const auto timeout_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS,
                   static_cast<long>(timeout_ms));
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer.body);
  const CURLcode code = curl_easy_perform(curl.get());
  if (code != CURLE_OK) return curl.ErrorOf(code, endpoint);
  answer.status = curl.status();
  return answer;
}

StatusOr<StreamReport> StreamText(
    const Endpoint& endpoint, const std::string& path, const std::string& body,
    const std::function<bool(std::string_view)>& on_text) {
  Curl curl;
  curl.Prepare(endpoint, path);
  curl.AddHeader("Content-Type: application/json");
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE_LARGE,
                   static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, body.c_str());
  StreamReader reader(curl.get(), on_text);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERFUNCTION, &StreamReader::OnHeader);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERDATA, &reader);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &StreamReader::OnBody);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &reader);
  const CURLcode code = curl_easy_perform(curl.get());
  return reader.Finish(
      code == CURLE_OK ? OkStatus() : curl.ErrorOf(code, endpoint),
      curl.status());
}

}  // namespace tidepool::cli
