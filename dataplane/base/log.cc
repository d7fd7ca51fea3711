#include "dataplane/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <iterator>
#include <memory>
#include <utility>

namespace tidepool {
namespace {

// The message on one line, whatever it repeats of what came from outside.
class OneLineMessage : public spdlog::custom_flag_formatter {
 public:
  // `quoted`: also fit for the inside of a JSON string.
  explicit OneLineMessage(bool quoted) : quoted_(quoted) {}

  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    for (const char c : message.payload) {
      if (quoted_ && (c == '"' || c == '\\')) {
        out.push_back('\\');
        out.push_back(c);
      } else if (static_cast<unsigned char>(c) < 0x20) {
        fmt::format_to(std::back_inserter(out), "\\u{:04x}",
                       static_cast<unsigned>(c));
      } else {
        out.push_back(c);
      }
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OneLineMessage>(quoted_);
  }

 private:
  const bool quoted_;
};

}  // namespace

Status InitLogging(const LogOptions& options) {
  const spdlog::level::level_enum level =
      spdlog::level::from_str(options.level);
  if (level == spdlog::level::off && options.level != "off")
    return InvalidArgument(
        "log-level: `{}` is none of trace, debug, info, warning, error, off",
        options.level);
  auto logger = std::make_shared<spdlog::logger>(
      "tidepool", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  const bool json = options.format == "json";
  if (!json && options.format != "text") {
    return InvalidArgument("log-format: `{}` is none of text, json",
                           options.format);
  }
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<OneLineMessage>('*', json).set_pattern(
      json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%f%z","level":"%l","message":"%*"})"
           : "%Y-%m-%dT%H:%M:%S.%e %L %*");
  logger->set_formatter(std::move(formatter));
  spdlog::set_default_logger(std::move(logger));
  return OkStatus();
}

}  // namespace tidepool
