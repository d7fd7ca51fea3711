#include "dataplane/model/unicode.h"

#include <gtest/gtest.h>

#include <string>

namespace tidepool::model::internal {
namespace {

std::string Lossy(std::string_view text) {
  std::string out;
  AppendLossy(text, out);
  return out;
}

TEST(Utf8Test, EveryCodePointSurvives) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, text);
    ASSERT_EQ(ValidUtf8Prefix(text), text.size()) << uint32_t{c};
    ASSERT_EQ(DecodeChar(text.data()).value, c);
    ASSERT_EQ(DecodeChar(text.data()).bytes, text.size());
    ASSERT_EQ(DecodeCharBefore(text.data() + text.size()).value, c);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(IncompleteSuffixBytes("x" + text.substr(0, cut)), cut);
    }
    ASSERT_EQ(IncompleteSuffixBytes(text), 0u);
  }
}

TEST(Utf8Test, IllFormedTextIsFound) {
  EXPECT_EQ(ValidUtf8Prefix("abcdefgh\x80"), 8u);
  EXPECT_EQ(ValidUtf8Prefix("\xC0\x80"), 0u);          // overlong
  EXPECT_EQ(ValidUtf8Prefix("\xE0\x80\x80"), 0u);      // overlong
  EXPECT_EQ(ValidUtf8Prefix("a\xED\xA0\x80"), 1u);     // a surrogate
  EXPECT_EQ(ValidUtf8Prefix("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(ValidUtf8Prefix("ab\xE2\x82"), 2u);
}

// The example of Unicode §3.9, table 3-8, and others.
TEST(Utf8Test, MaximalPartsAreReplaced) {
  EXPECT_EQ(Lossy("a\xF1\x80\x80\xE1\x80\xC2"
                  "b\x80"
                  "c\x80\xBF"
                  "d"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(Lossy("\xE2\x82"), "\uFFFD");
  EXPECT_EQ(Lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8Test, WhatCannotBeCompletedIsNotIncomplete) {
  EXPECT_EQ(IncompleteSuffixBytes("\x80"), 0u);
  EXPECT_EQ(IncompleteSuffixBytes("\xFF"), 0u);
  EXPECT_EQ(IncompleteSuffixBytes("\xE0\x80"), 0u);
  EXPECT_EQ(IncompleteSuffixBytes(""), 0u);
}

TEST(NormalizeTest, ComposesOnlyWhereNeeded) {
  const std::string decomposed = "cafe\u0301 \u1100\u1161\u11A8 a\u0316\u0301";
  EXPECT_FALSE(IsCertainlyNormal(NormalForm::kNfc, decomposed));
  EXPECT_EQ(Normalize(NormalForm::kNfc, decomposed), "café \uAC01 á\u0316");
  EXPECT_TRUE(IsCertainlyNormal(NormalForm::kNfc, "plain café 漢字"));
  EXPECT_EQ(Normalize(NormalForm::kNfc, "plain café 漢字"), "plain café 漢字");
  EXPECT_EQ(Normalize(NormalForm::kNfd, "é\uAC01"),
            "e\u0301\u1100\u1161\u11A8");
  EXPECT_EQ(Normalize(NormalForm::kNfkc, "ﬁ①"), "fi1");
  EXPECT_EQ(Normalize(NormalForm::kNfkd, "ﬁé"), "fie\u0301");
}

// utf8proc's own ordering would take hours for this.
TEST(NormalizeTest, LongRunsOfMarksAreOrderedInTime) {
  constexpr int kMarks = 200'000;
  std::string above, below;
  for (int i = 0; i < kMarks; ++i) {
    above += "\u0301";
    below += "\u0316";
  }
  EXPECT_EQ(Normalize(NormalForm::kNfd, "a" + above + below),
            "a" + below + above);
  EXPECT_EQ(Normalize(NormalForm::kNfc, "a" + above + below),
            "á" + below + above.substr(std::string("\u0301").size()));
  // Each of these becomes two marks of different classes.
  std::string pairs, first, second;
  for (int i = 0; i < kMarks; ++i) {
    pairs += "\u0F73";
    first += "\u0F71";
    second += "\u0F72";
  }
  EXPECT_EQ(Normalize(NormalForm::kNfd, pairs), first + second);
}

TEST(NormalizeTest, CharactersNewerThanTheLibraryStayApart) {
  // U+0898 has class 230 today, but moves nothing where it is unknown.
  EXPECT_EQ(Normalize(NormalForm::kNfd, "a\u0898\u0316"), "a\u0898\u0316");
}

TEST(LowercaseTest, FollowsTheFullMapping) {
  std::string out;
  for (const char32_t c : std::u32string_view(U"AÉÜΣЖ漢")) {
    AppendLowercase(c, out);
  }
  EXPECT_EQ(out, "aéüσж漢");
  out.clear();
  AppendLowercase(U'İ', out);
  EXPECT_EQ(out, "i\u0307");
}

TEST(FlagsTest, ClassesOfSomeCharacters) {
  EXPECT_EQ(FlagsOf('a'), kLetter | kWord);
  EXPECT_EQ(FlagsOf('7'), kNumber | kNumeric | kWord);
  EXPECT_EQ(FlagsOf(' '), kSpace);
  EXPECT_EQ(FlagsOf('!'), kPunctuation);
  EXPECT_EQ(FlagsOf('_'), kPunctuation | kWord);
  EXPECT_EQ(FlagsOf(0x0301), kMark | kWord | kNfcActive);
  EXPECT_EQ(FlagsOf(0x10FFFF) & (kLetter | kNumber | kSpace), 0);
}

}  // namespace
}  // namespace tidepool::model::internal
