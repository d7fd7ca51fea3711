#include "dataplane/conductor/conductor_options.h"

#include <algorithm>
#include <charconv>

#include "dataplane/base/config.h"

namespace tidepool::conductor {
namespace {

constexpr int64_t kDayMs = 24 * 3600 * 1000;

// Options whose types differ from those of the structures they end up in.
struct RawOptions {
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

void AddLimits(OptionSet& options, ConductorConfig& config, RawOptions& raw) {
  options.AddInt("http-threads", raw.http_threads, {1, 256},
                 "threads that serve connections");
  options.AddInt("tokenizer-threads", config.tokenizer_threads, {1, 256},
                 "threads that parse, render and tokenize");
  options.AddInt("max-connections", config.http.connections_max, {1, 1 << 20},
                 "connections beyond are refused");
  options.AddBytes("max-header-size", raw.max_header_size, {1024, 1 << 20},
                   "larger request headers are refused");
  options.AddBytes("max-body-size", raw.max_body_size, {1024, 1 << 30},
                   "larger request bodies are refused");
  options.AddBytes("max-total-body-size", raw.max_total_body_size,
                   {1024, int64_t{1} << 40},
                   "memory for all request bodies together");
  options.AddInt("idle-timeout-ms", raw.idle_timeout_ms, {1, kDayMs},
                 "between two requests of a connection");
  options.AddInt("header-timeout-ms", raw.header_timeout_ms, {1, kDayMs},
                 "for a whole request header");
  options.AddInt("body-timeout-ms", raw.body_timeout_ms, {1, kDayMs},
                 "for a whole request body");
  options.AddInt("write-timeout-ms", raw.write_timeout_ms, {1, kDayMs},
                 "without the client taking a byte of its answer");
  options.AddInt("request-timeout", raw.request_timeout_s, {1, 24 * 3600},
                 "seconds that a request may take");
  options.AddInt("max-requests", config.max_requests, {1, 1 << 20},
                 "choices in flight and waiting; more get a 429");
  options.AddInt("max-waiting-requests", config.max_waiting_requests,
                 {1, 1 << 20}, "choices without a worker; more get a 429");
}

void Apply(const RawOptions& raw, ConductorConfig& config) {
  using std::chrono::milliseconds;
  config.http.host = config.host;
  config.http.port = static_cast<uint16_t>(config.port);
  config.http.threads = static_cast<int>(raw.http_threads);
  config.http.probe_paths = {"/health", "/ready", "/metrics"};
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
  AddModelOptions(options, config);
  options.AddStrings("worker", config.workers, "a worker as [NAME=]HOST:PORT");
  options.AddStrings("discover", config.discover,
                     "HOST:PORT; every address that the name has, now and "
                     "later, is a worker");
  options.AddString("control-host", config.control_host,
                    "address that the control port listens on; by default "
                    "--host");
  options.AddInt("control-port", config.control_port, {-1, 65535},
                 "port of the fleet's statistics for the controller; 0 takes "
                 "a free one, -1 serves none");
  options.AddInt("drain-delay", config.drain_delay_s, {0, 3600},
                 "seconds after SIGTERM during which requests are still "
                 "accepted, while /ready says 503");
  AddEdgeOptions(options, config);
  AddProcessOptions(options, config);
  rpc::AddTlsOptions(options, config);
  AddLimits(options, config, raw);
  ASSIGN_OR_RETURN(const OptionSet::Outcome outcome, options.Parse(argc, argv));
  if (outcome == OptionSet::Outcome::kExit)
    return std::optional<ConductorConfig>();
  Apply(raw, config);
  // A default would tokenize for another model than the workers'.
  if (!options.WasSet("model") || config.model.empty())
    return InvalidArgument("--model is required");
  if (config.workers.empty() && config.discover.empty())
    return InvalidArgument("--worker or --discover is required");
  RETURN_IF_ERROR(rpc::Validate(config));
  if (!config.control_host.empty() && config.control_port < 0)
    return InvalidArgument("--control-host: is nothing without --control-port");
  if (config.control_host.empty()) config.control_host = config.host;
  if (config.http.total_body_bytes_max < config.http.body_bytes_max)
    return InvalidArgument("--max-total-body-size is under --max-body-size");
  return std::optional<ConductorConfig>(std::move(config));
}

StatusOr<std::vector<FleetWorker>> ParseWorkers(
    const std::vector<std::string>& texts) {
  std::vector<FleetWorker> workers;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(FleetWorker worker, ParseWorker(text));
    // Names are labels of metrics, which must not repeat.
    if (std::ranges::find(workers, worker.name, &FleetWorker::name) !=
        workers.end())
      return InvalidArgument("--worker: the name {} is given twice",
                             worker.name);
    workers.push_back(std::move(worker));
  }
  return workers;
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

StatusOr<std::vector<DnsName>> ParseDiscover(
    const std::vector<std::string>& texts) {
  std::vector<DnsName> names;
  for (const std::string& text : texts) {
    const StatusOr<FleetWorker> parsed = ParseWorker(text);
    const size_t colon = text.rfind(':');
    if (!parsed.ok() || text.find('=') != text.npos || text[0] == '[')
      return InvalidArgument("--discover: `{}` is not HOST:PORT", text);
    DnsName name{.host = text.substr(0, colon)};
    (void)std::from_chars(text.data() + colon + 1, text.data() + text.size(),
                          name.port);
    names.push_back(std::move(name));
  }
  return names;
}

StatusOr<ApiKeys> LoadApiKeys(const ConductorConfig& config) {
  std::vector<std::string> keys = config.api_keys;
  if (!config.api_key_file.empty()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> more,
                     ApiKeys::ReadFile(config.api_key_file));
    keys.insert(keys.end(), more.begin(), more.end());
  }
  if (keys.empty() && !config.no_auth && !rpc::IsLoopback(config.host))
    return InvalidArgument(
        "--host {} is beyond loopback: give --api-key or --api-key-file, or "
        "--no-auth if everybody may use it",
        config.host);
  return ApiKeys::Create(keys);
}

}  // namespace tidepool::conductor
