#include "dataplane/model/detokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dataplane/model/tokenizer.h"

namespace tidepool::model {
namespace {

std::unique_ptr<Tokenizer> LoadTestdata(const std::string& name) {
  auto tokenizer = Tokenizer::Load(std::string(TIDEPOOL_SOURCE_DIR) +
                                   "/dataplane/model/testdata/tokenizer/" +
                                   name + "/tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text) {
  return *tokenizer.Encode(text, {.add_special_tokens = false});
}

// Vocabulary of single characters, with `decoder` as the file's decoder.
std::unique_ptr<Tokenizer> WithDecoder(const std::string& decoder) {
  auto tokenizer =
      Tokenizer::Parse(R"({"decoder": )" + decoder +
                       R"(, "model": {"type": "BPE", "merges": [], "vocab":
          {"a": 0, "b": 1, "ab": 2, "▁": 3, "▁a": 4, "": 5, "<0xC3>": 6,
           "<0xA9>": 7, "bab": 8}}})");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(IncrementalDetokenizerTest, HoldsACharacterUntilItsLastByte) {
  const auto tokenizer = LoadTestdata("gpt2");
  const auto ids = Ids(*tokenizer, "𐍈");  // four tokens of one byte
  ASSERT_EQ(ids.size(), 4u);
  IncrementalDetokenizer detokenizer(*tokenizer, true);
  EXPECT_EQ(detokenizer.Append(ids[0]), "");
  EXPECT_EQ(detokenizer.Append(ids[1]), "");
  EXPECT_EQ(detokenizer.Append(ids[2]), "");
  EXPECT_EQ(detokenizer.Append(ids[3]), "𐍈");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(IncrementalDetokenizerTest, FlushesAnIncompleteCharacterAtTheEnd) {
  const auto tokenizer = LoadTestdata("gpt2");
  const auto ids = Ids(*tokenizer, "𐍈");
  IncrementalDetokenizer detokenizer(*tokenizer, true);
  EXPECT_EQ(detokenizer.Append(ids[0]), "");
  EXPECT_EQ(detokenizer.Append(ids[1]), "");
  EXPECT_EQ(detokenizer.Finish(), "\uFFFD");
  // And starts afresh.
  EXPECT_EQ(detokenizer.Append(Ids(*tokenizer, "x")[0]), "x");
}

TEST(IncrementalDetokenizerTest, ABrokenCharacterIsReplacedWhenItBreaks) {
  const auto tokenizer = LoadTestdata("gpt2");
  IncrementalDetokenizer detokenizer(*tokenizer, true);
  EXPECT_EQ(detokenizer.Append(Ids(*tokenizer, "𐍈")[0]), "");
  EXPECT_EQ(detokenizer.Append(Ids(*tokenizer, "x")[0]), "\uFFFDx");
}

TEST(IncrementalDetokenizerTest, SkipsSpecialTokensIfAsked) {
  const auto tokenizer = LoadTestdata("qwen2");
  const int32_t end = *tokenizer->TokenToId("<|im_end|>");
  const int32_t think = *tokenizer->TokenToId("<think>");  // not special
  EXPECT_EQ(IncrementalDetokenizer(*tokenizer, true).Append(end), "");
  EXPECT_EQ(IncrementalDetokenizer(*tokenizer, false).Append(end),
            "<|im_end|>");
  EXPECT_EQ(IncrementalDetokenizer(*tokenizer, true).Append(think), "<think>");
}

TEST(IncrementalDetokenizerTest, IdsWithoutATokenHaveNoText) {
  const auto tokenizer = LoadTestdata("qwen2");
  IncrementalDetokenizer detokenizer(*tokenizer, true);
  EXPECT_EQ(detokenizer.Append(tokenizer->vocab_size()), "");
  EXPECT_EQ(detokenizer.Append(-1), "");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(IncrementalDetokenizerTest, ContinuationAfterSkippedTokensKeepsItsSpace) {
  const auto tokenizer = LoadTestdata("sentencepiece");
  const auto prompt = Ids(*tokenizer, "the dog");
  const int32_t the = *tokenizer->TokenToId("▁the");
  IncrementalDetokenizer alone(*tokenizer, true);
  EXPECT_EQ(alone.Append(the), "the");
  IncrementalDetokenizer continuing(*tokenizer, true);
  continuing.Skip(prompt);
  EXPECT_EQ(continuing.Append(the), " the");
}

TEST(IncrementalDetokenizerTest, ACharacterBegunInThePromptIsCompleted) {
  const auto tokenizer = LoadTestdata("gpt2");
  const auto ids = Ids(*tokenizer, "x𐍈");
  IncrementalDetokenizer detokenizer(*tokenizer, true);
  detokenizer.Skip(std::span(ids).first(3));
  EXPECT_EQ(detokenizer.Append(ids[3]), "");
  EXPECT_EQ(detokenizer.Append(ids[4]), "𐍈");
}

TEST(IncrementalDetokenizerTest, ARunOfByteTokensIsAllOrNothing) {
  const auto tokenizer = WithDecoder(
      R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
                                           {"type": "Fuse"}]})");
  IncrementalDetokenizer detokenizer(*tokenizer, false);
  EXPECT_EQ(detokenizer.Append(6), "");
  EXPECT_EQ(detokenizer.Append(7), "");
  EXPECT_EQ(detokenizer.Append(0), "éa");
  EXPECT_EQ(detokenizer.Append(6), "");
  EXPECT_EQ(detokenizer.Append(7), "");
  EXPECT_EQ(detokenizer.Append(7), "");
  EXPECT_EQ(detokenizer.Append(0), "\uFFFD\uFFFD\uFFFDa");
}

TEST(IncrementalDetokenizerTest, ReplaceSpansJoinedTokens) {
  const auto tokenizer = WithDecoder(
      R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
          {"type": "Replace", "pattern": {"String": "abb"},
           "content": "<>"}]})");
  IncrementalDetokenizer detokenizer(*tokenizer, false);
  EXPECT_EQ(detokenizer.Append(0), "");    // a
  EXPECT_EQ(detokenizer.Append(0), "a");   // aa
  EXPECT_EQ(detokenizer.Append(1), "");    // aab
  EXPECT_EQ(detokenizer.Append(1), "<>");  // aabb
  EXPECT_EQ(detokenizer.Append(2), "");    // aabbab
  EXPECT_EQ(detokenizer.Finish(), "ab");
  const std::vector<int32_t> ids = {0, 0, 1, 1, 2};
  EXPECT_EQ(tokenizer->Decode(ids, false), "a<>ab");
}

TEST(IncrementalDetokenizerTest, StripTakesBothEndsOfJoinedTokens) {
  const auto tokenizer = WithDecoder(
      R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
          {"type": "Strip", "content": "b", "start": 2, "stop": 1}]})");
  IncrementalDetokenizer detokenizer(*tokenizer, false);
  EXPECT_EQ(detokenizer.Append(1), "");   // b
  EXPECT_EQ(detokenizer.Append(8), "a");  // b·bab: the last b waits
  EXPECT_EQ(detokenizer.Append(1), "b");
  EXPECT_EQ(detokenizer.Append(0), "ba");
  EXPECT_EQ(detokenizer.Append(1), "");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(IncrementalDetokenizerTest, MetaspaceDropsTheFirstSpace) {
  const auto tokenizer =
      WithDecoder(R"({"type": "Metaspace", "replacement": "▁",
                      "prepend_scheme": "always"})");
  IncrementalDetokenizer detokenizer(*tokenizer, false);
  EXPECT_EQ(detokenizer.Append(4), "a");
  EXPECT_EQ(detokenizer.Append(4), " a");
  EXPECT_EQ(detokenizer.Finish(), "");
  EXPECT_EQ(detokenizer.Append(4), "a");
}

}  // namespace
}  // namespace tidepool::model
