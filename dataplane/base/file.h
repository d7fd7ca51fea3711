#pragma once

#include <string>
#include <string_view>

#include "dataplane/base/status.h"

namespace tidepool {

// Writes a file that appears whole or not at all: a reader sees the former
// content, or none, until all of the new one is there. Not made to survive a
// crash of the machine. Errors name the path; nothing stays behind.
Status WriteFileAtomically(const std::string& path, std::string_view content);

}  // namespace tidepool
