// The tokenizer against what Hugging Face's library made of the same strings
// (scripts/dev/tokenizer_expectations.py).
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/model/detokenizer.h"
#include "dataplane/model/tokenizer.h"

namespace tidepool::model {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

const fs::path kTestdata =
    fs::path(TIDEPOOL_SOURCE_DIR) / "dataplane/model/testdata/tokenizer";

struct Case {
  std::string text;
  Ids ids, plain_ids;
  std::string decoded;
  Ids random_ids;
  std::string random_decoded, random_decoded_without_special;
};

Ids ReadIds(simdjson::dom::element element) {
  Ids ids;
  for (const int64_t id : element.get_array()) {
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::string ReadText(simdjson::dom::element element) {
  return std::string(std::string_view(element));
}

Case ReadCase(simdjson::dom::element line) {
  return {.text = ReadText(line["t"]),
          .ids = ReadIds(line["i"]),
          .plain_ids = ReadIds(line["p"]),
          .decoded = ReadText(line["d"]),
          .random_ids = ReadIds(line["r"]),
          .random_decoded = ReadText(line["rd"]),
          .random_decoded_without_special = ReadText(line["rs"])};
}

// In pieces, as a stream of tokens gives it; no piece may end in the middle
// of a character.
std::string DecodeIncrementally(const Tokenizer& tokenizer, const Ids& ids,
                                bool skip_special_tokens) {
  IncrementalDetokenizer detokenizer(tokenizer, skip_special_tokens);
  std::string text;
  const auto take = [&text](const std::string& piece) {
    EXPECT_TRUE(simdjson::validate_utf8(piece))
        << testing::PrintToString(piece);
    text += piece;
  };
  for (const int32_t id : ids) take(detokenizer.Append(id));
  take(detokenizer.Finish());
  return text;
}

void CheckCase(const Tokenizer& tokenizer, const Case& expected) {
  SCOPED_TRACE(testing::PrintToString(expected.text));
  const auto ids = tokenizer.Encode(expected.text);
  ASSERT_TRUE(ids.ok()) << ids.status();
  ASSERT_EQ(*ids, expected.ids);
  const auto plain_ids = tokenizer.Encode(
      expected.text,
      {.add_special_tokens = false, .parse_special_tokens = false});
  ASSERT_TRUE(plain_ids.ok()) << plain_ids.status();
  ASSERT_EQ(*plain_ids, expected.plain_ids);
  ASSERT_EQ(tokenizer.Decode(expected.ids, true), expected.decoded);
  const Ids& random_ids = expected.random_ids;
  SCOPED_TRACE(testing::PrintToString(random_ids));
  ASSERT_EQ(tokenizer.Decode(random_ids, false), expected.random_decoded);
  ASSERT_EQ(tokenizer.Decode(random_ids, true),
            expected.random_decoded_without_special);
  ASSERT_EQ(DecodeIncrementally(tokenizer, random_ids, false),
            expected.random_decoded);
  ASSERT_EQ(DecodeIncrementally(tokenizer, random_ids, true),
            expected.random_decoded_without_special);
}

void CheckAll(const fs::path& tokenizer_json, const fs::path& cases) {
  SCOPED_TRACE(tokenizer_json);
  const auto tokenizer = Tokenizer::Load(tokenizer_json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::ifstream file(cases);
  ASSERT_TRUE(file) << cases;
  simdjson::dom::parser parser;
  size_t count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    CheckCase(**tokenizer, ReadCase(parser.parse(line)));
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(count, 0u);
  printf("%s: %zu strings equal\n", tokenizer_json.c_str(), count);
}

TEST(TokenizerGoldenTest, DemoModelEqualsHuggingFace) {
  CheckAll(fs::path(TIDEPOOL_SOURCE_DIR) / "models/demo/tokenizer.json",
           kTestdata / "demo_cases.jsonl");
}

TEST(TokenizerGoldenTest, SmallTokenizersEqualHuggingFace) {
  size_t folders = 0;
  for (const auto& folder : fs::directory_iterator(kTestdata)) {
    if (!folder.is_directory()) continue;
    CheckAll(folder.path() / "tokenizer.json", folder.path() / "cases.jsonl");
    if (HasFatalFailure()) return;
    ++folders;
  }
  EXPECT_GE(folders, 6u);
}

// Folders with a tokenizer.json and cases.jsonl each.
TEST(TokenizerGoldenTest, FullTokenizersEqualHuggingFace) {
  const char* directory = std::getenv("TIDEPOOL_TOKENIZER_CASES");
  if (directory == nullptr) {
    GTEST_SKIP() << "TIDEPOOL_TOKENIZER_CASES is not set: full tokenizers are "
                    "NOT compared (see scripts/dev/tokenizer_compare)";
  }
  for (const auto& folder : fs::directory_iterator(directory)) {
    CheckAll(folder.path() / "tokenizer.json", folder.path() / "cases.jsonl");
  }
}

}  // namespace
}  // namespace tidepool::model
