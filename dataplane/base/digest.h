// SHA-256 for names that must not collide, XXH3 for guarding bytes in flight.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tidepool {

struct Sha256Digest {
  std::array<uint8_t, 32> bytes{};

  std::string Hex() const;
  auto operator<=>(const Sha256Digest&) const = default;

  // For hash tables: the digest is uniform already.
  template <typename H>
  friend H AbslHashValue(H h, const Sha256Digest& digest) {
    uint64_t prefix;
    std::memcpy(&prefix, digest.bytes.data(), sizeof(prefix));
    return H::combine(std::move(h), prefix);
  }
};

// Incremental SHA-256. Externally synchronized.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(std::span<const std::byte> data);
  void Update(std::string_view data);
  // Eight bytes, little-endian.
  void UpdateU64(uint64_t value);
  // The digest of everything so far; the object then starts afresh.
  Sha256Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256Digest Sha256Of(std::string_view data);

// XXH3-64: fast, not against an adversary.
uint64_t Checksum64(std::span<const std::byte> data, uint64_t seed = 0);
inline uint64_t Checksum64(std::string_view text, uint64_t seed = 0) {
  return Checksum64(std::as_bytes(std::span(text)), seed);
}

}  // namespace tidepool
