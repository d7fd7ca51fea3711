#include "dataplane/prefix/block_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace tidepool::prefix {
namespace {

using ::testing::SizeIs;

KeyDomain Domain() {
  KeyDomain domain{.kv_dtype = "bfloat16",
                   .numerics_id = "avx512-bf16-1",
                   .tenant_salt = "tenant-a",
                   .block_tokens = 4};
  std::iota(domain.model.bytes.begin(), domain.model.bytes.end(), 0);
  return domain;
}

// Computed with Python's hashlib from the definition. Keys live in stores
// longer than any build: they must not change.
TEST(BlockKeyTest, KeysAreTheDocumentedDigests) {
  const BlockKey root = Domain().Root();
  EXPECT_EQ(root.Hex(),
            "c4edcd4638e9be34e217d00796552b6edad31efed15cbccb144642ee53123b5e");
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<BlockKey> keys = BlockKeysOf(root, tokens, 4);
  ASSERT_THAT(keys, SizeIs(2));  // the ninth token fills no block
  EXPECT_EQ(keys[0].Hex(),
            "5ca03d8f2597f4e9e7a4cded3806714f7eca91654e1e5f88773b397ec83d5c47");
  EXPECT_EQ(keys[1].Hex(),
            "f69f4e3a244719201d4d1d62b25a9a5029171c08871e0cacad576c15aa9e9314");
  EXPECT_EQ(NextBlockKey(keys[0], std::span(tokens).subspan(4, 4)), keys[1]);
}

TEST(BlockKeyTest, EveryFieldOfTheDomainSeparates) {
  const BlockKey root = Domain().Root();
  const auto root_with = [](auto change) {
    KeyDomain domain = Domain();
    change(domain);
    return domain.Root();
  };
  EXPECT_NE(root_with([](auto& d) { d.model.bytes[31] ^= 1; }), root);
  EXPECT_NE(root_with([](auto& d) { d.kv_dtype = "float32"; }), root);
  EXPECT_NE(root_with([](auto& d) { d.numerics_id = "avx2-1"; }), root);
  EXPECT_NE(root_with([](auto& d) { d.adapter = "a"; }), root);
  EXPECT_NE(root_with([](auto& d) { d.tenant_salt = ""; }), root);
  EXPECT_NE(root_with([](auto& d) { d.block_tokens = 8; }), root);
  // The same letters in other fields.
  EXPECT_NE(root_with([](auto& d) {
              d.adapter = "ten";
              d.tenant_salt = "ant-a";
            }),
            root);
}

TEST(BlockKeyTest, AKeyDependsOnAllTokensInFrontOfIt) {
  const BlockKey root = Domain().Root();
  std::vector<int32_t> tokens(12, 7);
  const std::vector<BlockKey> keys = BlockKeysOf(root, tokens, 4);
  EXPECT_NE(keys[0], keys[1]);
  tokens[0] = 8;
  const std::vector<BlockKey> others = BlockKeysOf(root, tokens, 4);
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(keys[i], others[i]);
  EXPECT_THAT(BlockKeysOf(root, std::span(tokens).first(3), 4), SizeIs(0));
}

}  // namespace
}  // namespace tidepool::prefix
