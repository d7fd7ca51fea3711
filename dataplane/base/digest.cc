#include "dataplane/base/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include <iterator>
#include <utility>

#include "dataplane/base/check.h"

namespace tidepool {

std::string Sha256Digest::Hex() const {
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes)
    fmt::format_to(std::back_inserter(hex), "{:02x}", byte);
  return hex;
}

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::span<const std::byte> data) {
  CHECK(EVP_DigestUpdate(state_->context, data.data(), data.size()) == 1);
}

void Sha256::Update(std::string_view data) {
  Update(std::as_bytes(std::span(data)));
}

void Sha256::UpdateU64(uint64_t value) {
  std::byte bytes[8];
  for (int i = 0; i < 8; ++i)
    bytes[i] = static_cast<std::byte>(value >> (8 * i));
  Update(bytes);
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  CHECK(EVP_DigestFinal_ex(state_->context, digest.bytes.data(), nullptr) == 1);
  CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
  return digest;
}

Sha256Digest Sha256Of(std::string_view data) {
  Sha256 hash;
  hash.Update(data);
  return hash.Finish();
}

uint64_t Checksum64(std::span<const std::byte> data, uint64_t seed) {
  return XXH3_64bits_withSeed(data.data(), data.size(), seed);
}

}  // namespace tidepool
