// What the weight sources share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dataplane/base/digest.h"
#include "dataplane/base/status.h"

namespace tidepool::model {

// Errors: kInvalidArgument naming `source`, `tensor` and both shapes.
Status CheckShape(std::string_view source, std::string_view tensor,
                  std::span<const int64_t> shape,
                  std::span<const int64_t> expected);

// Adds one tensor's name, dtype and shape so that no two lists of tensors
// give the same bytes.
void AppendTensor(Sha256& digest, std::string_view name, std::string_view dtype,
                  std::span<const int64_t> shape);

}  // namespace tidepool::model
