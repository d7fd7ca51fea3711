#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "dataplane/base/config.h"
#include "dataplane/cli/commands.h"
#include "dataplane/cli/http_client.h"
#include "dataplane/conductor/api_keys.h"

namespace tidepool::cli {
namespace {

using Json = nlohmann::json;

// Where pods of conductors have it.
constexpr char kConductorKeyFile[] = "/etc/tidepool/api-key/api-key";

// What `complete` and `chat` share.
struct ClientConfig {
  Endpoint endpoint;
  std::string api_key_file;
  std::string model;
  int64_t max_tokens = 256;
  double temperature = -1;  // below 0: the model's default
  int64_t seed = -1;        // below 0: none
  int64_t wait_seconds = 0;
  bool stats = false;
};

void AddClientOptions(OptionSet& options, ClientConfig& config) {
  options.AddString("url", config.endpoint.url, "server to ask");
  options.AddString("api-key", config.endpoint.api_key,
                    "API key; else the environment's TIDEPOOL_API_KEY");
  options.AddString("api-key-file", config.api_key_file,
                    "file whose first API key is sent; in a conductor's pod "
                    "the conductor's own, if nothing else is given");
  options.AddString("model", config.model, "model; else the server's first");
  options.AddInt("max-tokens", config.max_tokens, {1, 1 << 20},
                 "longest answer");
  options.AddDouble("temperature", config.temperature, {-1, 2},
                    "0 is greedy; -1 leaves it to the server");
  options.AddInt("seed", config.seed, {-1, INT64_MAX},
                 "for the same answer again; -1 draws one");
  options.AddInt("wait", config.wait_seconds, {0, 3600},
                 "seconds to wait for a server that is not ready yet");
  options.AddBool("stats", config.stats,
                  "say afterwards how long it took and where it ran");
}

// Errors: kUnavailable with the last answer when time is up.
Status WaitUntilReady(const Endpoint& endpoint, std::chrono::seconds wait) {
  const TimePoint end = Clock::Monotonic().Now() + wait;
  for (;;) {
    const StatusOr<HttpAnswer> answer =
        Get(endpoint, "/ready", std::chrono::seconds(5));
    if (answer.ok() && answer->status == 200) return OkStatus();
    if (Clock::Monotonic().Now() >= end)
      return Unavailable("{} is not ready after {} s: {}", endpoint.url,
                         wait.count(),
                         answer.ok() ? answer->body.substr(0, 300)
                                     : MessageOf(answer.status()));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

StatusOr<std::string> FirstKeyIn(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> keys,
                   conductor::ApiKeys::ReadFile(path));
  return keys.front();
}

// "" if there is none.
StatusOr<std::string> FindApiKey(const ClientConfig& config) {
  if (!config.api_key_file.empty()) return FirstKeyIn(config.api_key_file);
  if (const char* key = std::getenv("TIDEPOOL_API_KEY")) return key;
  // The conductor's key is for the conductor beside us alone.
  if (config.endpoint.url != Endpoint().url ||
      access(kConductorKeyFile, F_OK) != 0)
    return std::string();
  return FirstKeyIn(kConductorKeyFile);
}

Status FillDefaults(ClientConfig& config) {
  if (config.endpoint.api_key.empty()) {
    ASSIGN_OR_RETURN(config.endpoint.api_key, FindApiKey(config));
  }
  if (config.wait_seconds > 0)
    RETURN_IF_ERROR(WaitUntilReady(config.endpoint,
                                   std::chrono::seconds(config.wait_seconds)));
  if (!config.model.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const HttpAnswer answer, Get(config.endpoint, "/v1/models",
                                                std::chrono::seconds(10)));
  if (answer.status != 200)
    return Unavailable("{}/v1/models answers HTTP {}: {}", config.endpoint.url,
                       answer.status, answer.body.substr(0, 300));
  const Json models = Json::parse(answer.body, nullptr, false);
  const Json::json_pointer first("/data/0/id");
  if (!models.is_object() || !models.contains(first) ||
      !models[first].is_string())
    return Unavailable("{}/v1/models lists no model", config.endpoint.url);
  config.model = models[first].get<std::string>();
  return OkStatus();
}

Json BodyOf(const ClientConfig& config) {
  Json body = {{"model", config.model},
               {"max_tokens", config.max_tokens},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (config.temperature >= 0) body["temperature"] = config.temperature;
  if (config.seed >= 0) body["seed"] = config.seed;
  return body;
}

bool Print(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

void PrintStats(const StreamReport& report) {
  const auto header = [&](const std::string& name) -> std::string {
    const auto found = report.headers.find(name);
    return found == report.headers.end() ? "-" : found->second;
  };
  fmt::print(stderr, "TTFT {:.1f} ms, TBT {:.1f} ms", 1e3 * report.ttft.count(),
             1e3 * report.tbt.count());
  if (report.prompt_tokens && report.completion_tokens)
    fmt::print(stderr, ", {} prompt tokens ({} cached), {} generated",
               *report.prompt_tokens, report.cached_tokens.value_or(0),
               *report.completion_tokens);
  fmt::print(stderr, "; prefill on {}, decode on {}, KV over {}\n",
             header("x-tidepool-prefill"), header("x-tidepool-decode"),
             header("x-tidepool-transport"));
}

// A piped-in text, or a prompt on the terminal.
std::string ReadAll(std::istream& in) {
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

StatusOr<int> Complete(int argc, const char* const* argv) {
  ClientConfig config;
  std::vector<std::string> prompt;
  OptionSet options("tidepool complete",
                    "Streams one completion of TEXT (or of standard input).");
  AddClientOptions(options, config);
  options.AddPositional("TEXT", prompt, 1, "the prompt");
  ASSIGN_OR_RETURN(const OptionSet::Outcome outcome, options.Parse(argc, argv));
  if (outcome == OptionSet::Outcome::kExit) return 0;
  if (prompt.empty()) prompt.push_back(ReadAll(std::cin));
  RETURN_IF_ERROR(FillDefaults(config));
  Json body = BodyOf(config);
  body["prompt"] = prompt[0];
  Print(prompt[0]);
  const StatusOr<StreamReport> report = StreamText(
      config.endpoint, "/v1/completions",
      body.dump(-1, ' ', false, Json::error_handler_t::replace), Print);
  Print("\n");
  RETURN_IF_ERROR(report.status());
  if (config.stats) PrintStats(*report);
  return 0;
}

StatusOr<int> Chat(int argc, const char* const* argv) {
  ClientConfig config;
  std::string system;
  OptionSet options(
      "tidepool chat",
      "A conversation; an empty line or the end of input leaves it.");
  AddClientOptions(options, config);
  options.AddString("system", system, "the system message");
  ASSIGN_OR_RETURN(const OptionSet::Outcome outcome, options.Parse(argc, argv));
  if (outcome == OptionSet::Outcome::kExit) return 0;
  RETURN_IF_ERROR(FillDefaults(config));
  Json messages = Json::array();
  if (!system.empty())
    messages.push_back({{"role", "system"}, {"content", system}});
  const bool terminal = isatty(STDIN_FILENO) != 0;
  for (std::string line;;) {
    if (terminal) Print("> ");
    if (!std::getline(std::cin, line) || line.empty()) return 0;
    messages.push_back({{"role", "user"}, {"content", line}});
    Json body = BodyOf(config);
    body["messages"] = messages;
    std::string answer;
    const StatusOr<StreamReport> report =
        StreamText(config.endpoint, "/v1/chat/completions",
                   body.dump(-1, ' ', false, Json::error_handler_t::replace),
                   [&answer](std::string_view text) {
                     answer += text;
                     return Print(text);
                   });
    Print("\n");
    RETURN_IF_ERROR(report.status());
    if (config.stats) PrintStats(*report);
    messages.push_back({{"role", "assistant"}, {"content", answer}});
  }
}

}  // namespace tidepool::cli
