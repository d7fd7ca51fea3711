#include "dataplane/model/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "dataplane/model/pretokenizer_match.h"
#include "dataplane/model/pretokenizer_regex.h"
#include "dataplane/model/pretokenizer_split.h"
#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

using Words = std::vector<std::string>;

Words Cut(const std::vector<PretokenizerStep>& steps, std::string_view text) {
  const auto pretokenizer = Pretokenizer::Create(steps);
  EXPECT_TRUE(pretokenizer.ok()) << pretokenizer.status();
  Words words;
  const Status status =
      (*pretokenizer)
          ->Run({text, text.size(), true},
                [&words](std::span<const Piece> pieces) {
                  for (const Piece& piece : pieces) {
                    EXPECT_GE(piece.readable, piece.text.size());
                    words.emplace_back(piece.text);
                  }
                  return OkStatus();
                });
  EXPECT_TRUE(status.ok()) << status;
  return words;
}

Words CutBy(std::string pattern, bool is_regex, SplitBehavior behavior,
            std::string_view text, bool invert = false) {
  return Cut({SplitStep{{is_regex, std::move(pattern)}, behavior, invert}},
             text);
}

Words CutByRegex(std::string_view pattern, std::string_view text) {
  const auto matcher = Matcher::Create({true, std::string(pattern)}, "pattern");
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  Words words;
  const Status status =
      matcher->ForEach(text, [&](size_t start, size_t end, bool matched) {
        EXPECT_TRUE(matched);  // these patterns leave nothing out
        words.emplace_back(text.substr(start, end - start));
        return OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return words;
}

std::string RandomText(std::mt19937& random) {
  // Few characters, so that the patterns' corners are met often.
  constexpr std::u32string_view kAlphabet =
      U"  \n\r\t\u00A0\u3000\u0085''''sStTmMdDlLrRvVeEſaZ09٣½"
      U"!-.<é漢あ́👍\u200B";
  std::string text;
  const size_t length = random() % 24;
  for (size_t i = 0; i < length; ++i) {
    AppendUtf8(kAlphabet[random() % kAlphabet.size()], text);
  }
  return text;
}

TEST(KnownSplitTest, EqualsTheRegularExpressionItStandsFor) {
  std::mt19937 random(7);
  for (const std::string_view pattern : {kGpt2, kLlama3, kQwen2}) {
    ASSERT_TRUE(KnownSplit::Recognize(pattern).has_value());
    for (int i = 0; i < 3000; ++i) {
      const std::string text = RandomText(random);
      ASSERT_EQ(
          CutBy(std::string(pattern), true, SplitBehavior::kIsolated, text),
          CutByRegex(pattern, text))
          << pattern << "\n"
          << testing::PrintToString(text);
    }
  }
}

TEST(KnownSplitTest, RecognizesOnlyTheExactPatterns) {
  EXPECT_FALSE(KnownSplit::Recognize("").has_value());
  EXPECT_FALSE(KnownSplit::Recognize(R"(\s+)").has_value());
  EXPECT_FALSE(KnownSplit::Recognize(std::string(kLlama3) + "|x").has_value());
  std::string other(kLlama3);
  other.replace(other.find("{1,3}"), 5, "{1,4}");
  EXPECT_FALSE(KnownSplit::Recognize(other).has_value());
}

TEST(PretokenizerTest, SplitsByEveryBehavior) {
  const auto run = [](SplitBehavior behavior) {
    return CutBy("-", false, behavior, "-a--b-c");
  };
  EXPECT_THAT(run(SplitBehavior::kRemoved), ElementsAre("a", "b", "c"));
  EXPECT_THAT(run(SplitBehavior::kIsolated),
              ElementsAre("-", "a", "-", "-", "b", "-", "c"));
  EXPECT_THAT(run(SplitBehavior::kMergedWithPrevious),
              ElementsAre("-", "a-", "-", "b-", "c"));
  EXPECT_THAT(run(SplitBehavior::kMergedWithNext),
              ElementsAre("-a", "-", "-b", "-c"));
  EXPECT_THAT(run(SplitBehavior::kContiguous),
              ElementsAre("-", "a", "--", "b", "-", "c"));
  EXPECT_THAT(CutBy("[a-z]+", true, SplitBehavior::kRemoved, "ab, cd!",
                    /*invert=*/true),
              ElementsAre("ab", "cd"));
}

TEST(PretokenizerTest, MetaspaceStartsWordsAsItsSchemeSays) {
  const auto run = [](PrependScheme scheme, bool split, std::string_view text) {
    return Cut({MetaspaceStep{"▁", scheme, split}}, text);
  };
  EXPECT_THAT(run(PrependScheme::kAlways, true, "a b  c "),
              ElementsAre("▁a", "▁b", "▁", "▁c", "▁"));
  EXPECT_THAT(run(PrependScheme::kAlways, true, " a"), ElementsAre("▁a"));
  EXPECT_THAT(run(PrependScheme::kNever, true, "a b"), ElementsAre("a", "▁b"));
  EXPECT_THAT(run(PrependScheme::kFirst, false, "a b"), ElementsAre("▁a▁b"));
}

TEST(PretokenizerTest, StepsWorkOnThePiecesOfTheOnesBefore) {
  EXPECT_THAT(Cut({CharClassStep{kNumeric, SplitBehavior::kIsolated},
                   ByteLevelStep{.add_prefix_space = true, .use_regex = true}},
                  "ab12 c"),
              ElementsAre(" ab", " 1", " 2", " c"));
  EXPECT_THAT(Cut({WordsStep{}}, "don't stop"),
              ElementsAre("don", "'", "t", "stop"));
}

TEST(PretokenizerTest, ByteLevelMakesBytes) {
  const auto bytes = Pretokenizer::Create({ByteLevelStep{}});
  EXPECT_EQ((*bytes)->word_form(), WordForm::kBytes);
  const auto text = Pretokenizer::Create({WordsStep{}});
  EXPECT_EQ((*text)->word_form(), WordForm::kText);
  EXPECT_EQ(
      Pretokenizer::Create({ByteLevelStep{}, WordsStep{}}).status().code(),
      Code::kUnimplemented);
}

TEST(PretokenizerTest, AnErrorOfTheSinkStopsTheWork) {
  const auto pretokenizer = Pretokenizer::Create({ByteLevelStep{}});
  int calls = 0;
  const std::string text = "one two three";
  const Status status =
      (*pretokenizer)
          ->Run({text, text.size(), true}, [&calls](std::span<const Piece>) {
            ++calls;
            return Internal("enough");
          });
  EXPECT_EQ(MessageOf(status), "enough");
  EXPECT_EQ(calls, 1);
}

TEST(RegexTest, TranslatesWhatOnigurumaMeans) {
  const auto translated = [](std::string_view pattern) {
    const auto result = TranslateRegex(pattern, "f");
    return result.ok() ? *result : std::string(MessageOf(result.status()));
  };
  EXPECT_EQ(translated(R"(\d\D\v\h)"), R"(\p{Nd}\P{Nd}\x{B}[0-9A-Fa-f])");
  EXPECT_EQ(translated(R"(\p{Han}\P{^L}[\p{Lu}])"),
            R"(\p{sc:Han}\p{L}[\p{Lu}])");
  EXPECT_EQ(translated(R"(\u00E9\x41\x{1F600})"), R"(\x{00E9}\x{41}\x{1F600})");
  EXPECT_EQ(translated(R"(a{,3}b{2}c{x)"), R"(a{0,3}b{2}c\{x)");
  for (const char* refused :
       {R"(\b)", R"(\1)", R"([a[b]])", R"([a&&b])", R"([[:alpha:]])",
        R"((?<n>a))", R"(a(?i)b)", R"((?m:a))", R"(a{2}+)", R"(a{2}?)",
        R"(\p{Alpha})", R"([\W])", R"(\K)", R"([])", R"(\pL)", "\\"}) {
    EXPECT_EQ(TranslateRegex(refused, "f").status().code(),
              Code::kUnimplemented)
        << refused;
  }
  EXPECT_EQ(TranslateRegex("[a", "f").status().code(), Code::kInvalidArgument);
}

TEST(RegexTest, WhiteSpaceIsThatOfUnicode) {
  const auto space = Regex::Compile(R"(^[\s]$)", "f");
  const auto visible = Regex::Compile(R"(^[\S]$)", "f");
  ASSERT_TRUE(space.ok() && visible.ok());
  for (char32_t c = 1; c < 0x11000; ++c) {
    if (c == '\n' || (c >= 0xD800 && c < 0xE000)) continue;
    std::string text;
    AppendUtf8(c, text);
    const bool is_space = (FlagsOf(c) & kSpace) != 0;
    ASSERT_EQ((*space->Find(text, 0)).has_value(), is_space) << uint32_t{c};
    ASSERT_EQ((*visible->Find(text, 0)).has_value(), !is_space);
  }
}

TEST(RegexTest, RunawayBacktrackingIsAnError) {
  const auto regex = Regex::Compile("(?:a+)+(?:a+)+[bc]", "f");
  ASSERT_TRUE(regex.ok());
  const auto match = regex->Find(std::string(200, 'a') + "!", 0);
  ASSERT_FALSE(match.ok());
  EXPECT_EQ(match.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(MessageOf(match.status())), HasSubstr("f:"));
}

}  // namespace
}  // namespace tidepool::model::internal
