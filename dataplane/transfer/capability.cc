#include "dataplane/transfer/capability.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <limits>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"

namespace tidepool::transfer {
namespace {

void AppendU64(std::vector<unsigned char>& out, uint64_t value) {
  for (int i = 0; i < 8; ++i)
    out.push_back(static_cast<unsigned char>(value >> (8 * i)));
}

}  // namespace

std::optional<uint32_t> Window::NumExtents() const {
  if (page_ids.size() > std::numeric_limits<uint32_t>::max())
    return std::nullopt;
  return CheckedMul(num_layers, static_cast<uint32_t>(page_ids.size()));
}

CapabilityMint::CapabilityMint() {
  CHECK(RAND_bytes(secret_.data(), static_cast<int>(secret_.size())) == 1);
}

Mac CapabilityMint::Sign(const Capability& capability) const {
  const Window& window = capability.window;
  std::vector<unsigned char> text;
  text.reserve(64 + window.page_ids.size() * 8);
  // Fixed-width fields and a count in front of the list: no two capabilities
  // serialize alike.
  for (const uint64_t field :
       {capability.id, capability.incarnation, capability.generation,
        window.region, uint64_t{window.num_layers}, window.layer_stride_bytes,
        window.slice_bytes, uint64_t{window.page_ids.size()}})
    AppendU64(text, field);
  for (const uint32_t page : window.page_ids) AppendU64(text, page);

  Mac mac;
  unsigned int mac_bytes = 0;
  CHECK(HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
             text.data(), text.size(),
             reinterpret_cast<unsigned char*>(mac.data()),
             &mac_bytes) != nullptr);
  CHECK(mac_bytes == mac.size());
  return mac;
}

bool SameMac(const Mac& a, const Mac& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tidepool::transfer
