#include "dataplane/conductor/api_keys.h"

#include <openssl/crypto.h>

#include <fstream>
#include <utility>

namespace tidepool::conductor {
namespace {

constexpr size_t kKeyBytesMax = 4096;

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

StatusOr<ApiKeys> ApiKeys::Create(const std::vector<std::string>& keys) {
  ApiKeys result;
  for (const std::string& key : keys) {
    if (key.empty() || key.size() > kKeyBytesMax)
      return InvalidArgument("an API key must have 1 to {} bytes",
                             kKeyBytesMax);
    // Blanks around a header's value do not count, so it would never match.
    if (Trim(key) != key)
      return InvalidArgument("an API key must not begin or end with a blank");
    result.digests_.push_back(Sha256Of(key));
  }
  return result;
}

StatusOr<std::vector<std::string>> ApiKeys::ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound("API key file {} cannot be read", path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const std::string_view key = Trim(line);
    if (!key.empty() && !key.starts_with('#')) keys.emplace_back(key);
  }
  if (keys.empty()) return InvalidArgument("API key file {} has no key", path);
  return keys;
}

bool ApiKeys::Allows(std::string_view authorization) const {
  if (digests_.empty()) return true;
  static constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) return false;
  const Sha256Digest given =
      Sha256Of(Trim(authorization.substr(kScheme.size())));
  bool found = false;
  for (const Sha256Digest& digest : digests_)
    found |= CRYPTO_memcmp(digest.bytes.data(), given.bytes.data(),
                           given.bytes.size()) == 0;
  return found;
}

}  // namespace tidepool::conductor
