// The commands of `tidepool`. Each takes the arguments after its name (with the
// name itself as argv[0]) and gives an exit status or an error to print.
#pragma once

#include "dataplane/base/status.h"

namespace tidepool::cli {

// A whole fleet on this machine.
StatusOr<int> Serve(int argc, const char* const* argv);
// One completion, streamed to standard output.
StatusOr<int> Complete(int argc, const char* const* argv);
// A conversation on the terminal.
StatusOr<int> Chat(int argc, const char* const* argv);

}  // namespace tidepool::cli
