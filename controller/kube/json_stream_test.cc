#include "controller/kube/json_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidepool::kube::internal {
namespace {

class Taken {
 public:
  TakeText Taker() {
    return [this](std::string_view text) {
      texts.emplace_back(text);
      return result;
    };
  }
  std::vector<std::string> texts;
  Status result;
};

// Feeds `text` in pieces of `size`.
template <typename Splitter>
Status FeedInPieces(Splitter& splitter, std::string_view text, size_t size) {
  while (!text.empty()) {
    RETURN_IF_ERROR(splitter.Feed(text.substr(0, size)));
    text.remove_prefix(std::min(size, text.size()));
  }
  return OkStatus();
}

constexpr std::string_view kList =
    R"({"kind":"PodList","metadata":{"resourceVersion":"7","items":[1]},)"
    R"( "items" : [ {"a":"]}\"{["} , {"b":{"items":[{}]}},{}],"after":[2]})";

TEST(ListSplitterTest, CutsItemsWhereverThePiecesEnd) {
  for (size_t size = 1; size <= kList.size(); ++size) {
    Taken taken;
    ListSplitter splitter(1000, taken.Taker());
    ASSERT_TRUE(FeedInPieces(splitter, kList, size).ok());
    EXPECT_EQ(taken.texts,
              (std::vector<std::string>{R"({"a":"]}\"{["})",
                                        R"({"b":{"items":[{}]}})", "{}"}));
    const auto around = splitter.Finish();
    ASSERT_TRUE(around.ok());
    EXPECT_EQ((*around)["metadata"]["resourceVersion"], "7");
    EXPECT_EQ((*around)["items"], Json::array());
    EXPECT_EQ((*around)["after"], Json::array({2}));
  }
}

TEST(ListSplitterTest, NoItemsIsAListToo) {
  for (const char* text : {R"({"items":[]})", R"({"items":null})", "{}"}) {
    Taken taken;
    ListSplitter splitter(1000, taken.Taker());
    ASSERT_TRUE(splitter.Feed(text).ok());
    EXPECT_TRUE(splitter.Finish().ok()) << text;
    EXPECT_TRUE(taken.texts.empty());
  }
}

TEST(ListSplitterTest, RefusesWhatIsNoList) {
  const auto code = [](std::string_view text) {
    Taken taken;
    ListSplitter splitter(40, taken.Taker());
    const Status fed = splitter.Feed(text);
    return fed.ok() ? splitter.Finish().status().code() : fed.code();
  };
  EXPECT_EQ(code(R"({"items":[{"a":1})"), Code::kDataLoss);
  EXPECT_EQ(code(R"({"items":[{"a":1)"), Code::kDataLoss);
  EXPECT_EQ(code(R"({"items":[7]})"), Code::kDataLoss);
  EXPECT_EQ(code(R"({"items":["x"]})"), Code::kDataLoss);
  EXPECT_EQ(code("[]"), Code::kDataLoss);
  EXPECT_EQ(code(""), Code::kDataLoss);
  EXPECT_EQ(code("]]]]"), Code::kDataLoss);
  EXPECT_EQ(code(R"({"items":[{"a":")" + std::string(50, 'x') + R"("}]})"),
            Code::kResourceExhausted);
  EXPECT_EQ(code(R"({"a":")" + std::string(50, 'x') + R"("})"),
            Code::kResourceExhausted);
}

TEST(ListSplitterTest, TheBoundIsOfEachItemNotOfAll) {
  Taken taken;
  ListSplitter splitter(40, taken.Taker());
  ASSERT_TRUE(splitter.Feed(R"({"items":[)").ok());
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(splitter.Feed(R"({"a":"0123456789"},)").ok());
  EXPECT_EQ(taken.texts.size(), 100u);
}

TEST(ListSplitterTest, EndsWithTheErrorOfItsTaker) {
  Taken taken;
  taken.result = Internal("no more");
  ListSplitter splitter(1000, taken.Taker());
  EXPECT_EQ(splitter.Feed(kList).code(), Code::kInternal);
  EXPECT_EQ(taken.texts.size(), 1u);
}

TEST(LineSplitterTest, CutsLinesWhereverThePiecesEnd) {
  constexpr std::string_view kText = "one\n\ntwo\nthree";
  for (size_t size = 1; size <= kText.size(); ++size) {
    Taken taken;
    LineSplitter splitter(5, taken.Taker());
    ASSERT_TRUE(FeedInPieces(splitter, kText, size).ok());
    EXPECT_EQ(taken.texts, (std::vector<std::string>{"one", "two"}));
  }
}

TEST(LineSplitterTest, RefusesALineBeyondTheBound) {
  Taken taken;
  LineSplitter splitter(5, taken.Taker());
  EXPECT_TRUE(splitter.Feed("12345\n123").ok());
  EXPECT_EQ(splitter.Feed("456").code(), Code::kResourceExhausted);
}

TEST(ParseJsonTest, LeavesOutWhoManagesWhichField) {
  const Json object = {
      {"metadata", {{"name", "a"}, {"labels", {{"managedFields", "mine"}}}}},
      {"spec", {{"list", {{{"managedFields", 1}}}}}}};
  Json sent = object;
  sent["metadata"]["managedFields"] = {{{"fieldsV1", {{"f:spec", 1}}}}};
  EXPECT_EQ(*ParseJson(sent.dump(), "object"), object);
  const Json event = {{"type", "ADDED"}, {"object", sent}};
  EXPECT_EQ(*ParseJson(event.dump(), "event", 1),
            Json({{"type", "ADDED"}, {"object", object}}));
}

}  // namespace
}  // namespace tidepool::kube::internal
