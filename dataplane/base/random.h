// Reproducible random numbers: a sequential generator for seeded tests and
// jitter, and counter-based draws that need no state to resume.
#pragma once

#include <cstdint>

namespace tidepool {

// Mixes 64 bits so that each input bit affects every output bit (the
// SplitMix64 finalizer).
constexpr uint64_t Mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  x ^= x >> 31;
  return x;
}

// The draw number `counter` of stream `seed`. Equal arguments give equal
// numbers everywhere, so a moved request continues where it left off.
constexpr uint64_t RandomAt(uint64_t seed, uint64_t counter) {
  return Mix64(Mix64(seed + 0x9e3779b97f4a7c15ull) +
               counter * 0x9e3779b97f4a7c15ull);
}

// `bits` as a double in [0, 1), from its upper 53 bits.
constexpr double ToUnit(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// SplitMix64. Externally synchronized.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() { return Mix64(state_ += 0x9e3779b97f4a7c15ull); }
  // Uniform in [0, bound); `bound` > 0.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>(
        (static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  double Unit() { return ToUnit(Next()); }
  bool Chance(double probability) { return Unit() < probability; }

 private:
  uint64_t state_;
};

// 64 bits from the operating system, for seeds, incarnations and secrets.
uint64_t SystemRandom64();

}  // namespace tidepool
