// Quantiles of the last minute in bounded memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "dataplane/base/clock.h"

namespace tidepool::conductor {

struct LatencyQuantiles {
  uint64_t count = 0;
  Duration p50{}, p90{}, p95{}, p99{};  // 0 if there is nothing
};

// Times from 0.1 ms to 1,000 s (others count as the nearest of these), told to
// within 2.5 %, over the current second and the 60 before it. About 80 KiB.
// Externally synchronized; `now` never goes back by more than a minute.
class LatencyWindow {
 public:
  LatencyWindow();
  // `count` times of the same length.
  void Add(Duration time, uint64_t count, TimePoint now);
  LatencyQuantiles Quantiles(TimePoint now) const;

 private:
  static constexpr size_t kBins = 331;
  static constexpr size_t kSlots = 61;
  struct Slot {
    int64_t second = -1;
    std::array<uint32_t, kBins> counts{};
  };

  std::unique_ptr<std::array<Slot, kSlots>> slots_;
};

}  // namespace tidepool::conductor
