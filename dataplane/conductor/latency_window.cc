#include "dataplane/conductor/latency_window.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tidepool::conductor {
namespace {

constexpr double kSmallest = 1e-4;  // seconds, the lower end of bin 0
const double kLogGrowth = std::log(1.05);

size_t BinOf(Duration time, size_t bins) {
  const double seconds = Seconds(time).count();
  if (seconds <= kSmallest) return 0;
  const double bin = std::log(seconds / kSmallest) / kLogGrowth;
  return std::min(bins - 1, static_cast<size_t>(bin));
}

// The middle of the bin.
Duration TimeOf(size_t bin) {
  const double seconds =
      kSmallest * std::exp((static_cast<double>(bin) + 0.5) * kLogGrowth);
  return std::chrono::duration_cast<Duration>(Seconds(seconds));
}

int64_t SecondOf(TimePoint now) {
  return std::chrono::floor<std::chrono::seconds>(now.time_since_epoch())
      .count();
}

}  // namespace

LatencyWindow::LatencyWindow()
    : slots_(std::make_unique<std::array<Slot, kSlots>>()) {}

void LatencyWindow::Add(Duration time, uint64_t count, TimePoint now) {
  const int64_t second = SecondOf(now);
  Slot& slot = (*slots_)[static_cast<size_t>(second) % kSlots];
  if (slot.second != second) {
    slot.second = second;
    slot.counts.fill(0);
  }
  uint32_t& bin = slot.counts[BinOf(time, kBins)];
  bin = static_cast<uint32_t>(
      std::min<uint64_t>(bin + count, std::numeric_limits<uint32_t>::max()));
}

LatencyQuantiles LatencyWindow::Quantiles(TimePoint now) const {
  const int64_t second = SecondOf(now);
  std::array<uint64_t, kBins> counts{};
  LatencyQuantiles result;
  for (const Slot& slot : *slots_) {
    if (slot.second < 0 || second - slot.second >= static_cast<int64_t>(kSlots))
      continue;
    for (size_t bin = 0; bin < kBins; ++bin) {
      counts[bin] += slot.counts[bin];
      result.count += slot.counts[bin];
    }
  }
  if (result.count == 0) return result;
  const auto at = [&](double share) {
    const double wanted = share * static_cast<double>(result.count);
    uint64_t seen = 0;
    size_t bin = 0;
    while (bin + 1 < kBins && static_cast<double>(seen += counts[bin]) < wanted)
      ++bin;
    return TimeOf(bin);
  };
  result.p50 = at(0.50);
  result.p90 = at(0.90);
  result.p95 = at(0.95);
  result.p99 = at(0.99);
  return result;
}

}  // namespace tidepool::conductor
