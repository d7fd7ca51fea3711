// Logs on standard error, one line a message: control characters in it come out
// as \u00XX.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

#include "dataplane/base/status.h"

namespace tidepool {

struct LogOptions {
  std::string level = "info";   // trace|debug|info|warning|error|off
  std::string format = "text";  // text|json
};

// Sets up the process-wide logger; call once in main.
// Errors: kInvalidArgument names the bad field.
Status InitLogging(const LogOptions& options);

}  // namespace tidepool

#define LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define LOG_WARNING(...) ::spdlog::warn(__VA_ARGS__)
#define LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
