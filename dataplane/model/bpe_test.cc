#include "dataplane/model/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "dataplane/model/bpe_bytes.h"
#include "dataplane/model/bpe_cache.h"
#include "dataplane/model/bpe_merge.h"
#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<int32_t>;

// The definition: again and again the leftmost pair of the lowest rank.
Ids MergeByDefinition(const MergeTable& merges, Ids ids) {
  while (true) {
    size_t best = 0;
    Merge lowest;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const Merge merge = merges.Find(ids[i], ids[i + 1]);
      if (merge.rank < lowest.rank) {
        lowest = merge;
        best = i;
      }
    }
    if (lowest.rank == Merge::kNever) return ids;
    ids[best] = lowest.id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

// Random merges over three characters; a token is the string it stands for.
MergeTable RandomMerges(std::mt19937& random) {
  std::vector<std::string> tokens = {"a", "b", "c"};
  MergeTable merges(60);
  for (uint32_t rank = 0; rank < 60; ++rank) {
    const size_t left = random() % tokens.size();
    const size_t right = random() % tokens.size();
    const std::string joined = tokens[left] + tokens[right];
    auto found = std::ranges::find(tokens, joined);
    if (found == tokens.end()) {
      tokens.push_back(joined);
      found = tokens.end() - 1;
    }
    merges.Add(static_cast<int32_t>(left), static_cast<int32_t>(right),
               {rank, static_cast<int32_t>(found - tokens.begin())});
  }
  return merges;
}

TEST(MergeAllTest, EqualsTheDefinitionAtEveryLength) {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    const MergeTable merges = RandomMerges(random);
    for (const size_t length : {0, 1, 2, 3, 17, 95, 96, 97, 98, 300}) {
      Ids ids(length);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % 3);
      const Ids expected = MergeByDefinition(merges, ids);
      ids.resize(MergeAll(merges, ids));
      ASSERT_EQ(ids, expected) << length;
    }
  }
}

TEST(MergeTableTest, TheFirstOfEqualPairsStays) {
  MergeTable merges(2);
  EXPECT_TRUE(merges.Add(1, 2, {.rank = 5, .id = 7}));
  EXPECT_FALSE(merges.Add(1, 2, {.rank = 3, .id = 8}));
  EXPECT_EQ(merges.Find(1, 2).id, 7);
  EXPECT_EQ(merges.Find(2, 1).rank, Merge::kNever);
}

TEST(WordCacheTest, FindsWhatWasPutUnlessForgotten) {
  WordCache cache(4);
  int32_t ids[WordCache::kIdsMax];
  size_t found = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string word = "word" + std::to_string(i);
    const CacheKey key(word, word.size());
    EXPECT_EQ(cache.Find(key, ids), 0u);
    const Ids value = {i, i + 1, i + 2};
    cache.Insert(key, value);
    ASSERT_EQ(cache.Find(key, ids), 3u);
    EXPECT_EQ(Ids(ids, ids + 3), value);
  }
  for (int i = 0; i < 1000; ++i) {
    const std::string word = "word" + std::to_string(i);
    if (cache.Find(CacheKey(word, word.size()), ids) == 0) continue;
    ++found;
    EXPECT_THAT(Ids(ids, ids + 3), ElementsAre(i, i + 1, i + 2));
  }
  EXPECT_GT(found, 0u);
  EXPECT_LE(found, 16u);
}

TEST(CacheKeyTest, DoesNotDependOnWhatFollowsTheWord) {
  const std::string text = "abcdefghijklmnopqrstuvwxyz0123456789";
  const std::string other = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ";
  for (size_t size = 1; size <= CacheKey::kBytesMax; ++size) {
    const CacheKey exact(std::string_view(text).substr(0, size), size);
    const CacheKey wide(std::string_view(other).substr(0, size), other.size());
    EXPECT_EQ(exact.words, wide.words) << size;
    EXPECT_EQ(exact.hash, wide.hash) << size;
  }
}

TEST(StringIndexTest, FindsStringsOfAnyKind) {
  StringTable table;
  for (const char* text : {"", "a", "ab", "\u2581x"}) table.Add(text);
  StringIndex index(table, 4);
  for (int32_t i = 0; i < 4; ++i) EXPECT_TRUE(index.Add(i));
  table.Add("ab");
  EXPECT_EQ(index.Find(""), 0);
  EXPECT_EQ(index.Find("ab"), 2);
  EXPECT_EQ(index.Find("\u2581x"), 3);
  EXPECT_EQ(index.Find("b"), std::nullopt);
}

TEST(ByteLevelTest, TheAlphabetIsABijection) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    AppendUtf8(ByteLevelChar(static_cast<uint8_t>(byte)), spelled);
    EXPECT_EQ(ByteLevelBytes(spelled), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(ByteLevelBytes("Ġthe"), " the");
  EXPECT_EQ(ByteLevelBytes("a b"), std::nullopt);
  EXPECT_EQ(ByteLevelBytes("漢"), std::nullopt);
}

TEST(ByteFallbackTest, OnlyTwoHexDigitsAreAByte) {
  EXPECT_EQ(ByteFallbackByte("<0xe2>"), 0xE2);
  for (const char* other : {"<0xE2", "<0x+2>", "<0xG0>", "<0x123>", "0xE2"}) {
    EXPECT_EQ(ByteFallbackByte(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace tidepool::model::internal
