#pragma once

namespace tidepool {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace tidepool
