#include "dataplane/conductor/output_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/random.h"
#include "dataplane/conductor/stop_matcher.h"

namespace tidepool::conductor {
namespace {

using model::Tokenizer;

TEST(StopMatcherTest, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopMatcher matcher({"END", "NOW"});
  EXPECT_EQ(matcher.Append("abc").text, "abc");
  EXPECT_EQ(matcher.Append("dE").text, "d");
  EXPECT_EQ(matcher.Append("N").text, "");
  EXPECT_EQ(matcher.Append("O").text, "E");  // "NO" may become "NOW"
  EXPECT_EQ(matcher.Append("!").text, "NO!");
  EXPECT_EQ(matcher.Append("EN").text, "");
  const StopMatcher::Result found = matcher.Append("D and more");
  EXPECT_EQ(found.text, "");
  ASSERT_NE(found.stop, nullptr);
  EXPECT_EQ(*found.stop, "END");
}

TEST(StopMatcherTest, EndsAtTheFirstCompleteStopString) {
  StopMatcher matcher({"later", "ab", "xab", "c"});
  const StopMatcher::Result found = matcher.Append("1xabc later");
  EXPECT_EQ(found.text, "1");
  EXPECT_EQ(*found.stop, "xab");  // the longest of those that end there
}

TEST(StopMatcherTest, FindsAStopStringThatOverlapsItself) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Append("aaa").text, "a");
  const StopMatcher::Result found = matcher.Append("b");
  EXPECT_EQ(found.text, "");
  EXPECT_NE(found.stop, nullptr);
}

TEST(StopMatcherTest, ReleasesWhatItHeld) {
  StopMatcher matcher({"stop"});
  EXPECT_EQ(matcher.Append("go sto").text, "go ");
  EXPECT_EQ(matcher.Release(), "sto");
}

// However the text is cut, the same text comes out and the same stop string.
TEST(StopMatcherTest, CutsDoNotMatter) {
  Random random(7);
  for (int round = 0; round < 2000; ++round) {
    const auto word = [&](uint64_t length_max) {
      std::string text;
      for (uint64_t i = random.Below(length_max) + 1; i > 0; --i)
        text += static_cast<char>('a' + random.Below(2));
      return text;
    };
    std::vector<std::string> stops;
    for (uint64_t i = random.Below(3) + 1; i > 0; --i) stops.push_back(word(5));
    const std::string text = word(40);
    StopMatcher whole(stops), pieces(stops);
    const StopMatcher::Result expected = whole.Append(text);
    StopMatcher::Result got;
    for (size_t at = 0; at < text.size() && !got.stop;) {
      const size_t size = random.Below(4) + 1;
      StopMatcher::Result next = pieces.Append(text.substr(at, size));
      got.text += next.text;
      got.stop = next.stop;
      at += size;
    }
    EXPECT_EQ(got.text, expected.text) << "round " << round;
    ASSERT_EQ(got.stop != nullptr, expected.stop != nullptr);
    if (got.stop) {
      EXPECT_EQ(*got.stop, *expected.stop);
    }
  }
}

class OutputProcessorTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::Load(std::string(TIDEPOOL_SOURCE_DIR) +
                                  "/models/demo/tokenizer.json");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    tokenizer_ = *std::move(loaded);
    prompt_ = Encode("Once upon a time");
  }

  std::vector<int32_t> Encode(std::string_view text) {
    return *tokenizer_->Encode(text, {.add_special_tokens = false});
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int32_t> prompt_;
};

TEST_F(OutputProcessorTest, NeverEmitsPartOfACharacter) {
  const std::string text = " naïve 東京 🙂 fin";
  OutputProcessor processor(tokenizer_.get(), prompt_, {});
  std::string all;
  for (const int32_t token : Encode(text)) {
    const auto delta = processor.Append({&token, 1}, Finish::kNone, {});
    EXPECT_EQ(delta.text.find("\xEF\xBF\xBD"), std::string::npos);
    all += delta.text;
  }
  EXPECT_EQ(all, text);
}

TEST_F(OutputProcessorTest, FindsAStopStringAcrossTokens) {
  OutputProcessor processor(tokenizer_.get(), prompt_,
                            {.stop = {"東京 🙂"}});
  const std::vector<int32_t> tokens = Encode(" to 東京 🙂 and beyond");
  std::string all;
  OutputProcessor::Delta last;
  size_t used = 0;
  while (used < tokens.size() && last.finish == Finish::kNone) {
    last = processor.Append({&tokens[used++], 1}, Finish::kNone, {});
    all += last.text;
  }
  EXPECT_EQ(all, " to ");
  EXPECT_EQ(last.finish, Finish::kStop);
  EXPECT_EQ(std::get<std::string>(last.stop_reason), "東京 🙂");
  EXPECT_LT(used, tokens.size());
}

TEST_F(OutputProcessorTest, CountsTokensUpToTheStopString) {
  const std::vector<int32_t> tokens = Encode(" one two three four");
  OutputProcessor keeps(tokenizer_.get(), prompt_,
                        {.stop = {"two"}, .include_stop = true});
  const auto delta = keeps.Append(tokens, Finish::kLength, {});
  EXPECT_EQ(delta.text, " one two");
  EXPECT_EQ(delta.finish, Finish::kStop);
  EXPECT_LT(delta.num_tokens, tokens.size());
}

TEST_F(OutputProcessorTest, TheTokenThatEndsItHasNoText) {
  std::vector<int32_t> tokens = Encode(" the end");
  OutputProcessor drops(tokenizer_.get(), prompt_, {});
  const auto without = drops.Append(tokens, Finish::kStop, tokens.back());
  EXPECT_EQ(without.text, " the");
  EXPECT_EQ(without.num_tokens, tokens.size());
  EXPECT_EQ(std::get<int32_t>(without.stop_reason), tokens.back());
  OutputProcessor keeps(tokenizer_.get(), prompt_, {.include_stop = true});
  EXPECT_EQ(keeps.Append(tokens, Finish::kStop, {}).text, " the end");
}

TEST_F(OutputProcessorTest, ReleasesAPartialStopStringAtTheEnd) {
  OutputProcessor processor(tokenizer_.get(), prompt_,
                            {.stop = {"end of story"}});
  const std::vector<int32_t> tokens = Encode(" the end of");
  EXPECT_EQ(processor.Append(tokens, Finish::kNone, {}).text, " the ");
  const auto last = processor.Append({}, Finish::kLength, {});
  EXPECT_EQ(last.text, "end of");
  EXPECT_EQ(last.finish, Finish::kLength);
}

TEST_F(OutputProcessorTest, LooksForNoStopStringBeforeMinTokens) {
  const std::vector<int32_t> tokens = Encode(" stop stop stop");
  ASSERT_GE(tokens.size(), 3u);
  OutputProcessor processor(
      tokenizer_.get(), prompt_,
      {.stop = {"stop"},
       .min_tokens = static_cast<int32_t>(tokens.size()) - 1});
  const auto delta = processor.Append(tokens, Finish::kNone, {});
  EXPECT_EQ(delta.finish, Finish::kStop);
  EXPECT_EQ(delta.num_tokens, tokens.size());
}

TEST_F(OutputProcessorTest, HasNoTextWithoutATokenizer) {
  OutputProcessor processor(nullptr, prompt_, {});
  const std::vector<int32_t> tokens = {1, 2, 3};
  const auto delta = processor.Append(tokens, Finish::kStop, 3);
  EXPECT_EQ(delta.text, "");
  EXPECT_EQ(delta.num_tokens, 3u);
  EXPECT_EQ(delta.finish, Finish::kStop);
}

}  // namespace
}  // namespace tidepool::conductor
