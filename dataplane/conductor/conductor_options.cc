#include "dataplane/conductor/conductor_options.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "dataplane/base/config.h"

namespace tidepool::conductor {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kDayMs = 24 * 3600 * 1000;

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Options whose types differ from those of the structures they end up in.
struct RawOptions {
  int64_t port = 8000;
  int64_t http_threads = 1;
  uint64_t max_body_size = HttpServerOptions{}.body_bytes_max;
  uint64_t max_header_size = HttpServerOptions{}.header_bytes_max;
  uint64_t max_total_body_size = HttpServerOptions{}.total_body_bytes_max;
  int64_t idle_timeout_ms = HttpServerOptions{}.idle_timeout.count();
  int64_t header_timeout_ms = HttpServerOptions{}.header_timeout.count();
  int64_t body_timeout_ms = HttpServerOptions{}.body_timeout.count();
  int64_t write_timeout_ms = HttpServerOptions{}.write_timeout.count();
  int64_t request_timeout_s = 600;
};

void AddServing(OptionSet& options, ConductorConfig& config) {
  options.AddString("model", config.model,
                    "Model folder, hf:ORG/NAME[@REV] or demo; required. Only "
                    "its configuration and tokenizer are read.");
  options.AddStrings("served-model-name", config.served_model_names,
                     "Name of the model in the API; the first is in metrics.");
  options.AddInt("max-model-len", config.max_model_len, {0, kInt32Max},
                 "Longest prompt and output together; 0: as the model says.");
  options.AddString("download-dir", config.download_dir,
                    "Where models of the hub are kept.");
  options.AddStrings("worker", config.workers,
                     "Worker as [NAME=]HOST:PORT; at least one.");
  options.AddStrings("api-key", config.api_keys,
                     "Key that clients must present as a bearer token.");
  options.AddString("api-key-file", config.api_key_file,
                    "File with one such key a line.");
  options.AddBool("no-auth", config.no_auth,
                  "Serve beyond loopback without API keys.");
}

void AddLimits(OptionSet& options, ConductorConfig& config, RawOptions& raw) {
  options.AddString("host", config.http.host, "Address to listen on.");
  options.AddInt("port", raw.port, {0, 65535}, "Port; 0: any free one.");
  options.AddInt("http-threads", raw.http_threads, {1, 256},
                 "Threads that serve connections.");
  options.AddInt("tokenizer-threads", config.tokenizer_threads, {1, 256},
                 "Threads that parse, render and tokenize.");
  options.AddInt("max-connections", config.http.connections_max, {1, 1 << 20},
                 "Connections beyond are refused.");
  options.AddBytes("max-header-size", raw.max_header_size, {1024, 1 << 20},
                   "Larger request headers are refused.");
  options.AddBytes("max-body-size", raw.max_body_size, {1024, 1 << 30},
                   "Larger request bodies are refused.");
  options.AddBytes("max-total-body-size", raw.max_total_body_size,
                   {1024, int64_t{1} << 40},
                   "Memory for all request bodies together.");
  options.AddInt("idle-timeout-ms", raw.idle_timeout_ms, {1, kDayMs},
                 "Between two requests of a connection.");
  options.AddInt("header-timeout-ms", raw.header_timeout_ms, {1, kDayMs},
                 "For a whole request header.");
  options.AddInt("body-timeout-ms", raw.body_timeout_ms, {1, kDayMs},
                 "For a whole request body.");
  options.AddInt("write-timeout-ms", raw.write_timeout_ms, {1, kDayMs},
                 "Without the client taking a byte of its answer.");
  options.AddInt("request-timeout", raw.request_timeout_s, {1, 24 * 3600},
                 "Seconds that a request may take.");
  options.AddInt("max-requests", config.max_requests, {1, 1 << 20},
                 "Choices in flight and waiting; more get a 429.");
  options.AddInt("max-waiting-requests", config.max_waiting_requests,
                 {0, 1 << 20}, "Choices without a worker; more get a 429.");
  options.AddInt("drain-timeout", config.drain_timeout_s, {0, 24 * 3600},
                 "Seconds that running answers have to end after SIGTERM.");
  options.AddString("ready-file", config.ready_file,
                    "Written as {\"address\": \"HOST:PORT\"} once listening.");
  options.AddString("log-level", config.log.level,
                    "trace, debug, info, warning or error.");
  options.AddString("log-format", config.log.format, "text or json.");
}

void Apply(const RawOptions& raw, ConductorConfig& config) {
  using std::chrono::milliseconds;
  config.http.port = static_cast<uint16_t>(raw.port);
  config.http.threads = static_cast<int>(raw.http_threads);
  config.http.header_bytes_max = static_cast<uint32_t>(raw.max_header_size);
  config.http.body_bytes_max = raw.max_body_size;
  config.http.total_body_bytes_max = raw.max_total_body_size;
  config.http.idle_timeout = milliseconds(raw.idle_timeout_ms);
  config.http.header_timeout = milliseconds(raw.header_timeout_ms);
  config.http.body_timeout = milliseconds(raw.body_timeout_ms);
  config.http.write_timeout = milliseconds(raw.write_timeout_ms);
  config.request_timeout = std::chrono::seconds(raw.request_timeout_s);
}

}  // namespace

StatusOr<std::optional<ConductorConfig>> ParseConductorOptions(
    int argc, const char* const* argv) {
  ConductorConfig config;
  RawOptions raw;
  OptionSet options("tidepool-conductor",
                    "OpenAI-compatible HTTP in front of a fleet of workers.");
  AddServing(options, config);
  AddLimits(options, config, raw);
  ASSIGN_OR_RETURN(const OptionSet::Outcome outcome, options.Parse(argc, argv));
  if (outcome == OptionSet::Outcome::kExit)
    return std::optional<ConductorConfig>();
  Apply(raw, config);
  if (config.model.empty()) return InvalidArgument("--model is required");
  if (config.workers.empty())
    return InvalidArgument("--worker is required, at least once");
  if (config.http.total_body_bytes_max < config.http.body_bytes_max)
    return InvalidArgument("--max-total-body-size is under --max-body-size");
  return std::optional<ConductorConfig>(std::move(config));
}

StatusOr<FleetWorker> ParseWorker(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view address =
      equals == text.npos ? text : text.substr(equals + 1);
  const std::string_view name =
      equals == text.npos ? text : text.substr(0, equals);
  const size_t colon = address.rfind(':');
  uint16_t port = 0;
  if (colon != address.npos && colon > 0) {
    const std::string_view digits = address.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size()) port = 0;
  }
  const bool is_plain = std::ranges::all_of(
      text, [](char c) { return c > ' ' && c != '"' && c != '\\' && c < 127; });
  if (name.empty() || port == 0 || !is_plain)
    return InvalidArgument("--worker: `{}` is not [NAME=]HOST:PORT", text);
  return FleetWorker{.name = std::string(name),
                     .address = std::string(address)};
}

StatusOr<ApiKeys> LoadApiKeys(const ConductorConfig& config) {
  std::vector<std::string> keys = config.api_keys;
  if (!config.api_key_file.empty()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> more,
                     ApiKeys::ReadFile(config.api_key_file));
    keys.insert(keys.end(), more.begin(), more.end());
  }
  if (keys.empty() && !config.no_auth && !IsLoopback(config.http.host))
    return InvalidArgument(
        "--host {} is beyond loopback: give --api-key or --api-key-file, or "
        "--no-auth if everybody may use it",
        config.http.host);
  return ApiKeys::Create(keys);
}

}  // namespace tidepool::conductor
