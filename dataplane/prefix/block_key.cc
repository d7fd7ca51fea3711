#include "dataplane/prefix/block_key.h"

namespace tidepool::prefix {

BlockKey KeyDomain::Root() const {
  Sha256 hash;
  hash.Update("tidepool block key 1");
  hash.Update(std::as_bytes(std::span(model.bytes)));
  for (const std::string* field :
       {&kv_dtype, &numerics_id, &adapter, &tenant_salt}) {
    hash.UpdateU64(field->size());
    hash.Update(std::string_view(*field));
  }
  hash.UpdateU64(block_tokens);
  return hash.Finish();
}

BlockKey NextBlockKey(const BlockKey& parent, std::span<const int32_t> tokens) {
  Sha256 hash;
  return NextBlockKey(hash, parent, tokens);
}

BlockKey NextBlockKey(Sha256& hash, const BlockKey& parent,
                      std::span<const int32_t> tokens) {
  hash.Update(std::as_bytes(std::span(parent.bytes)));
  hash.Update(std::as_bytes(tokens));
  return hash.Finish();
}

std::vector<BlockKey> BlockKeysOf(const BlockKey& root,
                                  std::span<const int32_t> tokens,
                                  uint32_t block_tokens) {
  std::vector<BlockKey> keys;
  keys.reserve(tokens.size() / block_tokens);
  Sha256 hash;
  const BlockKey* parent = &root;
  for (size_t i = 0; i + block_tokens <= tokens.size(); i += block_tokens) {
    keys.push_back(
        NextBlockKey(hash, *parent, tokens.subspan(i, block_tokens)));
    parent = &keys.back();
  }
  return keys;
}

}  // namespace tidepool::prefix
