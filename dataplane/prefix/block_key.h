// Names of KV blocks (DESIGN §3): key_i = SHA-256(key_{i-1} ‖ tokens_i).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/digest.h"

namespace tidepool::prefix {

using BlockKey = Sha256Digest;

// Everything besides the tokens that KV depends on. Two caches share a block
// only if all of it is equal.
struct KeyDomain {
  Sha256Digest model;       // weights and tokenizer
  std::string kv_dtype;     // "bfloat16"
  std::string numerics_id;  // compute mode and instruction set
  std::string adapter;      // "" for none
  std::string tenant_salt;  // "" shares between tenants
  uint32_t block_tokens = 64;

  // key_{-1}: the seed of every chain in this domain. Fields are length-
  // prefixed, so that no two domains hash the same bytes.
  BlockKey Root() const;
};

// key_i of block i, given key_{i-1} (or the root) and its tokens.
BlockKey NextBlockKey(const BlockKey& parent, std::span<const int32_t> tokens);

// The same with `hash`, which is fresh before and after, and no allocation.
BlockKey NextBlockKey(Sha256& hash, const BlockKey& parent,
                      std::span<const int32_t> tokens);

// Keys of all full blocks of `tokens`, in order.
std::vector<BlockKey> BlockKeysOf(const BlockKey& root,
                                  std::span<const int32_t> tokens,
                                  uint32_t block_tokens);

}  // namespace tidepool::prefix
