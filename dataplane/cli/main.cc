#include <cstdio>
#include <cstring>
#include <string_view>

#include "dataplane/base/version.h"
#include "dataplane/cli/commands.h"

namespace {

struct Command {
  std::string_view name;
  tidepool::StatusOr<int> (*run)(int argc, const char* const* argv);
  std::string_view help;
};

constexpr Command kCommands[] = {
    {"serve", tidepool::cli::Serve, "run a whole fleet on this machine"},
    {"complete", tidepool::cli::Complete, "stream one completion"},
    {"chat", tidepool::cli::Chat, "talk to a model on the terminal"},
};

void PrintUsage(std::FILE* out) {
  fmt::print(out, "Usage: tidepool COMMAND [options]\n\n");
  for (const Command& command : kCommands)
    fmt::print(out, "  {:<10} {}\n", command.name, command.help);
  fmt::print(out, "\ntidepool COMMAND --help explains a command's options.\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "help") {
    PrintUsage(stdout);
    return 0;
  }
  if (name == "--version") {
    fmt::print("tidepool {}\n", tidepool::kVersion);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    const tidepool::StatusOr<int> result = command.run(argc - 1, argv + 1);
    if (result.ok()) return *result;
    fmt::print(stderr, "tidepool {}: {}\n", name,
               tidepool::MessageOf(result.status()));
    return result.status().code() == tidepool::Code::kInvalidArgument ? 2 : 1;
  }
  if (!name.empty()) fmt::print(stderr, "tidepool: no command `{}`\n\n", name);
  PrintUsage(stderr);
  return 2;
}
