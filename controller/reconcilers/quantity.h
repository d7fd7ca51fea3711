// Kubernetes quantities ("64Gi", "500m", "1.5") as whole numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dataplane/base/status.h"

namespace tidepool::reconcilers {

// Rounded up to a whole unit. Errors: kInvalidArgument for what is not a
// quantity, is negative, or is beyond 2^63 - 1.
StatusOr<uint64_t> ParseQuantity(std::string_view text);

// The way the API server writes a number of bytes: with the largest binary
// suffix that divides it.
std::string FormatBytes(uint64_t bytes);

// For people: "12.3 GiB".
std::string ReadableBytes(uint64_t bytes);

}  // namespace tidepool::reconcilers
