#include "dataplane/model/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/model/test_util.h"

namespace tidepool::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StatusOr<SafetensorsHeader> Parse(std::string_view file) {
  return ParseSafetensorsHeader(std::as_bytes(std::span(file)), file.size());
}

StatusOr<SafetensorsHeader> Parse(std::string_view header, size_t data_bytes) {
  return Parse(SafetensorsFile(header, std::string(data_bytes, 'x')));
}

void ExpectRefused(const StatusOr<SafetensorsHeader>& parsed,
                   std::string_view message) {
  EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument) << parsed.status();
  EXPECT_THAT(MessageOf(parsed.status()), HasSubstr(std::string(message)));
}

// One tensor "a" of these fields.
std::string Tensor(std::string_view fields) {
  return fmt::format(R"({{"a":{{{}}}}})", fields);
}

TEST(SafetensorsHeaderTest, OffsetsBecomePlacesInTheFile) {
  const std::string text =
      R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[2,10]},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}   )";
  const auto header = Parse(text, 10);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->size(), 2u);
  const uint64_t data = 8 + text.size();
  EXPECT_EQ(header->at("a").begin, data);
  EXPECT_EQ(header->at("a").end, data + 2);
  EXPECT_THAT(header->at("b").shape, ElementsAre(2));
  EXPECT_EQ(header->at("b").begin, data + 2);
  EXPECT_EQ(header->at("b").end, data + 10);
}

TEST(SafetensorsHeaderTest, EmptyTensorsAndEmptyFilesAreFine) {
  EXPECT_TRUE(Parse("{}", 0).ok());
  EXPECT_TRUE(
      Parse(Tensor(R"("dtype":"F32","shape":[0,7],"data_offsets":[0,0])"), 0)
          .ok());
}

TEST(SafetensorsHeaderTest, UnknownDTypesMayStandUnasked) {
  EXPECT_TRUE(
      Parse(Tensor(R"("dtype":"Q3","shape":[8],"data_offsets":[0,3])"), 3)
          .ok());
  EXPECT_EQ(WeightDType("Q3"), std::nullopt);
  EXPECT_EQ(WeightDType("F64"), std::nullopt);
  EXPECT_EQ(WeightDType("BF16"), DType::kBFloat16);
}

TEST(SafetensorsHeaderTest, RefusesATruncatedFileAtEveryLength) {
  const std::string whole = SafetensorsFile(
      Tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "12345678");
  ASSERT_TRUE(Parse(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(Parse(whole.substr(0, size)).status().code(),
              Code::kInvalidArgument)
        << size;
  }
}

TEST(SafetensorsHeaderTest, RefusesHeadersThatCannotBe) {
  ExpectRefused(Parse(std::string(8, '\xff')), "over the limit");
  ExpectRefused(Parse(std::string("\x00\xe1\xf5\x05\0\0\0\0", 8)),
                "beyond the file");  // 100,000,000: the limit itself
  ExpectRefused(Parse(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8)),
                "over the limit");
  ExpectRefused(Parse("", 0), "not valid JSON");
  ExpectRefused(Parse("[]", 0), "unexpected place");
  ExpectRefused(Parse("3", 0), "unexpected place");
  ExpectRefused(Parse("{} {}", 0), "not valid JSON");
  ExpectRefused(Parse(std::string(100000, '['), 0), "unexpected place");
  ExpectRefused(Parse(R"({"a":)" + std::string(100000, '{'), 0),
                "not valid JSON");
  ExpectRefused(Parse("{\"\xff\":3}", 0), "not valid JSON");
}

TEST(SafetensorsHeaderTest, RefusesTensorsThatDoNotTileTheData) {
  const auto two = [](std::string_view a, std::string_view b) {
    return fmt::format(
        R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
        R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
        a, b);
  };
  EXPECT_TRUE(Parse(two("[0,4]", "[4,8]"), 8).ok());
  EXPECT_TRUE(Parse(two("[4,8]", "[0,4]"), 8).ok());
  ExpectRefused(Parse(two("[0,4]", "[3,7]"), 8),
                "\"b\": data_offsets begin at "
                "3, which overlaps");
  ExpectRefused(Parse(two("[0,4]", "[0,4]"), 4), "\"b\"");
  ExpectRefused(Parse(two("[0,4]", "[5,9]"), 9), "leaves a gap");
  ExpectRefused(Parse(two("[1,5]", "[5,9]"), 9), "leaves a gap");
  ExpectRefused(Parse(two("[0,4]", "[4,8]"), 7), "beyond the 7 bytes");
  ExpectRefused(Parse(two("[0,4]", "[4,8]"), 9), "1 bytes of data after");
  ExpectRefused(Parse("{}", 5), "5 bytes of data after");
}

TEST(SafetensorsHeaderTest, RefusesSizesThatDisagreeOrOverflow) {
  ExpectRefused(
      Parse(Tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4),
      "take 8 bytes, data_offsets 4");
  ExpectRefused(Parse(Tensor(R"("dtype":"F32","shape":[4611686018427387904],)"
                             R"("data_offsets":[0,0])"),
                      0),
                "shape overflows");
  ExpectRefused(Parse(Tensor(R"("dtype":"U8","shape":[4294967296,4294967296],)"
                             R"("data_offsets":[0,0])"),
                      0),
                "shape overflows");
  ExpectRefused(Parse(Tensor(R"("dtype":"U8","shape":[9223372036854775808],)"
                             R"("data_offsets":[0,0])"),
                      0),
                "a dimension overflows");
  ExpectRefused(
      Parse(Tensor(R"("dtype":"U8","shape":[4],"data_offsets":[4,0])"), 4),
      "end before begin");
  ExpectRefused(Parse(Tensor(R"("dtype":"Q3","shape":[4],)"
                             R"("data_offsets":[0,18446744073709551615])"),
                      4),
                "beyond the 4 bytes");
  ExpectRefused(
      Parse(
          Tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],)"
                 R"("data_offsets":[0,1])"),
          1),
      "more than 16 dimensions");
}

TEST(SafetensorsHeaderTest, RefusesFieldsOfTheWrongKindByName) {
  for (const auto& [fields, message] :
       std::initializer_list<std::pair<const char*, const char*>>{
           {R"("shape":[1],"data_offsets":[0,1])", "dtype: missing"},
           {R"("dtype":"U8","data_offsets":[0,1])", "shape: missing"},
           {R"("dtype":"U8","shape":[1])", "data_offsets: not two"},
           {R"("dtype":"U8","shape":[1],"data_offsets":[0])",
            "data_offsets: not two"},
           {R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])",
            "data_offsets: more than two"},
           {R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])",
            "a negative number"},
           {R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])", "no integer"},
           {R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])",
            "a string in an unexpected place"},
           {R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])",
            "a list in an unexpected place"},
           {R"("dtype":"U8","shape":null,"data_offsets":[0,1])", "null"},
           {R"("dtype":1,"shape":[1],"data_offsets":[0,1])", "a number"},
           {R"("dtype":"","shape":[1],"data_offsets":[0,1])", "dtype is empty"},
           {R"("dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1])",
            "dtype is empty or given twice"},
           {R"("dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1])",
            "a list in an unexpected place"},
           {R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"extra":1)",
            "unknown field \"extra\""}}) {
    const auto parsed = Parse(Tensor(fields), 1);
    ExpectRefused(parsed, message);
    EXPECT_THAT(MessageOf(parsed.status()), HasSubstr("tensor \"a\""));
  }
}

TEST(SafetensorsHeaderTest, RefusesRepeatedNamesAndOtherMetadata) {
  const std::string tensor =
      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  ExpectRefused(Parse(fmt::format("{{{},{}}}", tensor, tensor), 1),
                "tensor \"a\": appears twice");
  ExpectRefused(
      Parse(R"({"__metadata__":{"a":"b"},"__metadata__":{"a":"b"}})", 0),
      "appears twice");
  ExpectRefused(Parse(R"({"__metadata__":{"a":1}})", 0), "unexpected place");
  ExpectRefused(Parse(R"({"__metadata__":{"a":{"b":"c"}}})", 0),
                "unexpected place");
}

}  // namespace
}  // namespace tidepool::model
