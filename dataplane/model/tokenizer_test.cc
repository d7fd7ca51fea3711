#include "dataplane/model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/model/detokenizer.h"

namespace tidepool::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> LoadTestdata(const std::string& name) {
  auto tokenizer = Tokenizer::Load(std::string(TIDEPOOL_SOURCE_DIR) +
                                   "/dataplane/model/testdata/tokenizer/" +
                                   name + "/tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<int32_t> EncodeOrDie(const Tokenizer& tokenizer,
                                 std::string_view text,
                                 const EncodeOptions& options = {}) {
  auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return *std::move(ids);
}

// A file with `fields` in front of a tiny model, whose members `model` may
// override.
struct Parts {
  std::string vocab = R"({"a": 0, "b": 1, "ab": 2})";
  std::string merges = R"(["a b"])";
  std::string model = "";   // more members
  std::string fields = "";  // more members of the file
};

std::string File(const Parts& parts) {
  return "{" + parts.fields + R"("model": {"type": "BPE", )" + parts.model +
         R"("vocab": )" + parts.vocab + R"(, "merges": )" + parts.merges + "}}";
}

void ExpectError(const std::string& json, Code code, const std::string& what) {
  const auto tokenizer = Tokenizer::Parse(json);
  ASSERT_FALSE(tokenizer.ok()) << json;
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status();
  EXPECT_THAT(std::string(MessageOf(tokenizer.status())), HasSubstr(what));
}

TEST(TokenizerTest, EncodesAndDecodesTheTinyFile) {
  const auto tokenizer = Tokenizer::Parse(File({}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 3);
  EXPECT_THAT(EncodeOrDie(**tokenizer, "aabb"), ElementsAre(0, 2, 1));
  EXPECT_EQ((*tokenizer)->TokenToId("ab"), 2);
  EXPECT_EQ((*tokenizer)->TokenToId("ba"), std::nullopt);
  EXPECT_EQ((*tokenizer)->IdToToken(2), "ab");
  EXPECT_EQ((*tokenizer)->IdToToken(3), "");
  EXPECT_EQ((*tokenizer)->IdToToken(-1), "");
  // Without a decoder tokens are joined with spaces, without an unk token
  // unknown characters vanish.
  EXPECT_EQ((*tokenizer)->Decode(EncodeOrDie(**tokenizer, "aab!"), false),
            "a ab");
}

TEST(TokenizerTest, RefusesWhatIsNotJson) {
  ExpectError("", Code::kInvalidArgument, "is not JSON");
  ExpectError("[1, 2", Code::kInvalidArgument, "is not JSON");
  ExpectError(std::string(100000, '['), Code::kInvalidArgument, "is not JSON");
  ExpectError("{\"a\": \"\xFF\"}", Code::kInvalidArgument, "is not JSON");
  ExpectError("[]", Code::kInvalidArgument, "must be an object");
  ExpectError("{}", Code::kInvalidArgument, "\"model\" is missing");
}

TEST(TokenizerTest, RefusesContradictoryVocabularies) {
  ExpectError(File({.vocab = R"({"a": 0, "b": 0, "ab": 1})"}),
              Code::kInvalidArgument, "\"a\" and \"b\" both have id 0");
  ExpectError(File({.vocab = R"({"a": 0, "b": 1, "a": 2})"}),
              Code::kInvalidArgument, "\"a\" has the ids 0 and 2");
  ExpectError(File({.vocab = R"({"a": 0, "b": 1, "ab": 3})"}),
              Code::kInvalidArgument, "no token has id 2");
  ExpectError(File({.vocab = R"({"a": 0, "b": -1, "ab": 2})"}),
              Code::kInvalidArgument, "model.vocab[\"b\"]: must be an id");
  ExpectError(File({.vocab = R"({"a": 0, "b": 1.5, "ab": 2})"}),
              Code::kInvalidArgument, "model.vocab[\"b\"]: must be an id");
  ExpectError(File({.vocab = R"({"a": 0, "b": 99999999999, "ab": 2})"}),
              Code::kInvalidArgument, "model.vocab[\"b\"]: must be an id");
  ExpectError(File({.vocab = "{}", .merges = "[]"}), Code::kInvalidArgument,
              "has no tokens");
  ExpectError(File({.vocab = R"({"a": 0, "b": 1, "ab": 2, ")" +
                             std::string(5000, 'x') + R"(": 3})"}),
              Code::kInvalidArgument, "id 3 is longer than 4096 bytes");
}

TEST(TokenizerTest, RefusesContradictoryMerges) {
  ExpectError(File({.merges = R"(["a c"])"}), Code::kInvalidArgument,
              "model.merges[0]: \"c\" is not in model.vocab");
  ExpectError(File({.merges = R"(["b a"])"}), Code::kInvalidArgument,
              "model.merges[0]: \"ba\" is not in model.vocab");
  ExpectError(File({.merges = R"(["a b", ["a", "b"]])"}),
              Code::kInvalidArgument, "model.merges[1]: \"a\" and \"b\" were");
  ExpectError(File({.merges = R"(["a  b"])"}), Code::kInvalidArgument,
              "model.merges[0]: must be two tokens");
  ExpectError(File({.merges = R"([["a"]])"}), Code::kInvalidArgument,
              "model.merges[0]: must be two tokens");
  // A merge that makes nothing longer would go round in circles.
  ExpectError(File({.vocab = R"({"a": 0, "": 1})", .merges = R"([["a", ""]])"}),
              Code::kInvalidArgument, "model.merges[0]: has an empty token");
}

TEST(TokenizerTest, RefusesContradictoryAddedTokens) {
  const auto with = [](std::string tokens) {
    return File({.fields = R"("added_tokens": [)" + tokens + "],"});
  };
  ExpectError(with(R"({"id": 0, "content": "x"})"), Code::kInvalidArgument,
              "id 0 of \"x\" is that of \"a\"");
  ExpectError(with(R"({"id": 3, "content": "x"}, {"id": 3, "content": "y"})"),
              Code::kInvalidArgument, "id 3 twice");
  ExpectError(with(R"({"id": 3, "content": "x"}, {"id": 4, "content": "x"})"),
              Code::kInvalidArgument, "\"x\" has the ids 3 and 4");
  ExpectError(with(R"({"id": 3, "content": "ab"})"), Code::kInvalidArgument,
              "\"ab\" has the ids 2 and 3");
  ExpectError(with(R"({"id": 5, "content": "x"})"), Code::kInvalidArgument,
              "no token has id 3");
  ExpectError(with(R"({"id": 3, "content": ""})"), Code::kInvalidArgument,
              "added_tokens[0].content: must have 1 to 4096 bytes");
  ExpectError(with(R"({"id": 3, "content": "x", "special": 1})"),
              Code::kInvalidArgument, "added_tokens[0].special: must be true");
  ExpectError(with(R"({"content": "x"})"), Code::kInvalidArgument,
              "added_tokens[0]: \"id\" is missing");
}

TEST(TokenizerTest, RefusesWhatItDoesNotSupportByName) {
  const std::pair<const char*, const char*> fields[] = {
      {R"("version": "2.0",)", "version: \"2.0\""},
      {R"("truncation": {"max_length": 5},)", "truncation: anything but null"},
      {R"("padding": {},)", "padding: anything but null"},
      {R"("normalizer": {"type": "BertNormalizer"},)",
       "normalizer.type: \"BertNormalizer\""},
      {R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}]},)",
       "normalizer.normalizers[0].type: \"Nmt\""},
      {R"("pre_tokenizer": {"type": "UnicodeScripts"},)",
       "pre_tokenizer.type: \"UnicodeScripts\""},
      {R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [
           {"type": "ByteLevel"}, {"type": "Whitespace"}]},)",
       "steps after ByteLevel"},
      {R"("post_processor": {"type": "BertProcessing"},)",
       "post_processor.type: \"BertProcessing\""},
      {R"("decoder": {"type": "WordPiece"},)", "decoder.type: \"WordPiece\""},
      {R"("decoder": {"type": "Replace", "pattern": {"Regex": "x"},
           "content": ""},)",
       "decoder.pattern.Regex"},
      {R"("decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"},
           {"type": "ByteFallback"}]},)",
       "after tokens were joined"}};
  for (const auto& [text, what] : fields) {
    ExpectError(File({.fields = text}), Code::kUnimplemented, what);
  }
  ExpectError(File({.model = R"("dropout": 0.1,)"}), Code::kUnimplemented,
              "model.dropout");
  ExpectError(File({.model = R"("end_of_word_suffix": "</w>",)"}),
              Code::kUnimplemented, "model.end_of_word_suffix");
  ExpectError(R"({"model": {"type": "Unigram"}})", Code::kUnimplemented,
              "model.type: \"Unigram\"");
}

TEST(TokenizerTest, RefusesMalformedSteps) {
  const std::pair<const char*, const char*> fields[] = {
      {R"("normalizer": {},)", "normalizer: \"type\" is missing"},
      {R"("normalizer": {"type": "Replace", "pattern": {"String": ""},
           "content": ""},)",
       "normalizer.pattern: must not be empty"},
      {R"("pre_tokenizer": {"type": "Metaspace", "replacement": "__"},)",
       "pre_tokenizer.replacement: must be one character"},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "x"},
           "behavior": "Sideways"},)",
       "\"Sideways\" is not a behavior"},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("},
           "behavior": "Isolated"},)",
       "in the regular expression"},
      {R"("decoder": {"type": "Strip", "content": " ", "start": -1,
           "stop": 0},)",
       "decoder.start: must be an integer from 0"},
      {R"("post_processor": {"type": "TemplateProcessing", "special_tokens": {},
           "single": [{"SpecialToken": {"id": "<s>"}},
                      {"Sequence": {"id": "A"}}]},)",
       "\"<s>\" is missing"},
      {R"("post_processor": {"type": "TemplateProcessing",
           "special_tokens": {"<s>": {"ids": [7]}},
           "single": [{"SpecialToken": {"id": "<s>"}},
                      {"Sequence": {"id": "A"}}]},)",
       "id 7 has no token"},
      {R"("decoder": null, "decoder": null,)", "decoder: is given twice"}};
  for (const auto& [text, what] : fields) {
    ExpectError(File({.fields = text}), Code::kInvalidArgument, what);
  }
  ExpectError(File({.model = R"("unk_token": "<unk>",)"}),
              Code::kInvalidArgument, "model.unk_token: \"<unk>\" is not in");
}

TEST(TokenizerTest, BoundsWhatIsAddedToEveryText) {
  std::string ids = "0", pieces;
  for (int i = 1; i < 100; ++i) ids += ",0";
  for (int i = 0; i < 11; ++i) pieces += R"({"SpecialToken": {"id": "<s>"}},)";
  const std::string processor =
      R"({"type": "TemplateProcessing", "special_tokens": {"<s>": {"ids": [)" +
      ids + R"(]}}, "single": [)";
  const std::string text = R"({"Sequence": {"id": "A"}}]})";
  ExpectError(File({.fields = "\"post_processor\": " + processor + pieces +
                              text + ","}),
              Code::kInvalidArgument, "adds more than 1024 tokens");
  std::string several;
  for (int i = 0; i < 11; ++i) {
    several += processor + R"({"SpecialToken": {"id": "<s>"}},)" + text + ",";
  }
  several.pop_back();
  ExpectError(File({.fields = R"("post_processor": {"type": "Sequence",
                                 "processors": [)" +
                              several + "]},"}),
              Code::kInvalidArgument, "adds more than 1024 tokens");
}

TEST(TokenizerTest, BoundsTheNormalizedText) {
  const auto tokenizer = Tokenizer::Parse(File(
      {.fields = R"("normalizer": {"type": "Prepend", "prepend": "b"},)"}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text(Tokenizer::kTextBytesMax, 'a');
  EXPECT_EQ((*tokenizer)->Encode(text).status().code(),
            Code::kResourceExhausted);
}

TEST(TokenizerTest, BoundsTheNestingOfSequences) {
  std::string steps = R"({"type": "NFC"})";
  for (int i = 0; i < 20; ++i) {
    steps = R"({"type": "Sequence", "normalizers": [)" + steps + "]}";
  }
  ExpectError(File({.fields = "\"normalizer\": " + steps + ","}),
              Code::kInvalidArgument, "nested too deep");
}

TEST(TokenizerTest, NamesTheFileThatCannotBeRead) {
  const auto tokenizer = Tokenizer::Load("no/such/tokenizer.json");
  EXPECT_EQ(tokenizer.status().code(), Code::kNotFound);
  EXPECT_THAT(std::string(MessageOf(tokenizer.status())),
              HasSubstr("no/such/tokenizer.json"));
}

TEST(TokenizerTest, RefusesTextThatIsNotUtf8) {
  const auto tokenizer = LoadTestdata("gpt2");
  for (const char* text :
       {"abc\xFF", "\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80"}) {
    const auto ids = tokenizer->Encode(text);
    EXPECT_EQ(ids.status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_THAT(std::string(MessageOf(tokenizer->Encode("abc\xFF").status())),
              HasSubstr("byte 3"));
}

TEST(TokenizerTest, StopsAtTheLimitOfTokens) {
  const auto tokenizer = LoadTestdata("llama3");
  const size_t count = EncodeOrDie(*tokenizer, "one two three").size();
  EXPECT_TRUE(tokenizer->Encode("one two three", {.max_tokens = count}).ok());
  const auto ids =
      tokenizer->Encode("one two three", {.max_tokens = count - 1});
  EXPECT_EQ(ids.status().code(), Code::kResourceExhausted);
}

TEST(TokenizerTest, SpecialTokensAreAddedAndParsedAsAsked) {
  const auto tokenizer = LoadTestdata("llama3");
  const int32_t begin = *tokenizer->TokenToId("<|begin_of_text|>");
  const int32_t end = *tokenizer->TokenToId("<|eot_id|>");
  EXPECT_TRUE(tokenizer->IsSpecial(end));
  EXPECT_FALSE(tokenizer->IsSpecial(0));
  EXPECT_FALSE(tokenizer->IsSpecial(tokenizer->vocab_size()));
  EXPECT_THAT(EncodeOrDie(*tokenizer, "<|eot_id|>"), ElementsAre(begin, end));
  EXPECT_THAT(
      EncodeOrDie(*tokenizer, "<|eot_id|>", {.add_special_tokens = false}),
      ElementsAre(end));
  EXPECT_THAT(
      EncodeOrDie(*tokenizer, "<|eot_id|>",
                  {.add_special_tokens = false, .parse_special_tokens = false}),
      testing::Not(testing::Contains(end)));
  EXPECT_EQ(tokenizer->added_tokens().size(), 5u);
  EXPECT_EQ(tokenizer->added_tokens()[0].content, "<|begin_of_text|>");
}

TEST(TokenizerTest, EqualFilesHaveEqualDigests) {
  EXPECT_EQ(LoadTestdata("gpt2")->digest(), LoadTestdata("gpt2")->digest());
  EXPECT_NE(LoadTestdata("gpt2")->digest(), LoadTestdata("qwen2")->digest());
  const std::string json = File({});
  EXPECT_EQ((*Tokenizer::Parse(json))->digest(), Sha256Of(json));
}

// Quadratic time would take hours here.
TEST(TokenizerTest, LongWordsTakeLinearithmicTime) {
  for (const char* name : {"gpt2", "llama3", "sentencepiece", "o200k"}) {
    const auto tokenizer = LoadTestdata(name);
    for (const std::string& unit :
         {std::string("a"), std::string("the"), std::string(" "),
          std::string("\n"), std::string("'"), std::string("漢")}) {
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      const auto ids =
          EncodeOrDie(*tokenizer, text, {.add_special_tokens = false});
      EXPECT_EQ(tokenizer->Decode(ids, true), text) << name << " " << unit;
    }
  }
}

TEST(TokenizerTest, BytesOfTokensAreTheBytesOfTheText) {
  const std::string text = "Grüße, 世界! 👍🏽 <|eot_id|>\n\ttabs";
  for (const char* name : {"gpt2", "llama3", "o200k", "sentencepiece"}) {
    const auto tokenizer = LoadTestdata(name);
    std::string bytes;
    for (const int32_t id :
         EncodeOrDie(*tokenizer, text, {.add_special_tokens = false})) {
      bytes += tokenizer->TokenBytes(id);
    }
    const std::string space = name == std::string("sentencepiece") ? " " : "";
    EXPECT_EQ(bytes, space + text) << name;
  }
}

TEST(TokenizerTest, TokenTextReplacesHalfCharacters) {
  const auto tokenizer = LoadTestdata("sentencepiece");
  EXPECT_EQ(tokenizer->TokenText(*tokenizer->TokenToId("<0xE2>")), "\uFFFD");
  EXPECT_EQ(tokenizer->TokenBytes(*tokenizer->TokenToId("<0xE2>")), "\xE2");
  EXPECT_EQ(tokenizer->TokenText(*tokenizer->TokenToId("▁the")), " the");
}

TEST(TokenizerTest, ThreadsShareOneTokenizer) {
  const auto tokenizer = LoadTestdata("qwen2");
  // More words than the cache has places, so that threads evict each other's.
  const auto text_of = [](int seed) {
    std::string text;
    for (int i = 0; i < 20000; ++i) {
      text += " w" + std::to_string((i * 7919 + seed) % 60000);
      text += "é";
    }
    return text;
  };
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 4; ++i) {
    // Each from a cache of its own.
    expected.push_back(EncodeOrDie(*LoadTestdata("qwen2"), text_of(i)));
  }
  std::vector<std::thread> threads;
  std::vector<std::vector<int32_t>> got(4);
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round) {
        got[i] = EncodeOrDie(*tokenizer, text_of(static_cast<int>(i)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got[i], expected[i]);
}

}  // namespace
}  // namespace tidepool::model
