#include "dataplane/model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace tidepool::model {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr double kNow = 1767323045;  // 2026-01-02 03:04:05 UTC
const ChatRenderOptions kAtNow = {.now_unix_seconds = kNow};
const std::string kTestdata = std::string(TIDEPOOL_SOURCE_DIR) +
                              "/dataplane/model/testdata/chat_template";

ordered_json ReadJson(const std::string& name) {
  std::ifstream file(kTestdata + "/" + name);
  return ordered_json::parse(file);
}

StatusOr<std::string> Render(
    const std::string& source,
    const ordered_json& context = ordered_json::object(),
    const ChatRenderOptions& options = kAtNow) {
  ASSIGN_OR_RETURN(const ChatTemplate chat_template,
                   ChatTemplate::Parse(source));
  return chat_template.Render(context, options);
}

// ---- Against other implementations

TEST(ChatTemplateLanguageTest, GivesWhatPythonsJinjaGives) {
  const ordered_json context = ReadJson("language_context.json");
  const ordered_json snippets = ReadJson("language.json");
  ASSERT_GT(snippets.size(), 600u);
  for (const ordered_json& snippet : snippets) {
    const std::string source = snippet["template"];
    const StatusOr<std::string> result = Render(source, context);
    if (snippet.contains("error")) {
      EXPECT_FALSE(result.ok()) << source << "\n gives: " << *result
                                << "\n but should fail: " << snippet["error"];
    } else if (result.ok()) {
      EXPECT_EQ(*result, snippet["expected"].get<std::string>()) << source;
    } else {
      ADD_FAILURE() << source << "\n" << result.status();
    }
  }
}

class ConversationTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ConversationTest, RendersAsTheOtherImplementationsDo) {
  const std::string name = GetParam();
  const std::string folder =
      name == "demo" ? std::string(TIDEPOOL_SOURCE_DIR) + "/models/demo"
                     : kTestdata + "/" + name;
  const StatusOr<ChatTemplate> chat_template =
      ChatTemplate::FromModelFolder(folder);
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  const ordered_json data = ReadJson("conversations.json");
  ASSERT_GT(data["contexts"].size(), 50u);
  for (const auto& [label, context] : data["contexts"].items()) {
    const ordered_json& wanted = data["results"][name][label];
    const StatusOr<std::string> result = chat_template->Render(context, kAtNow);
    if (wanted.contains("error")) {
      EXPECT_EQ(result.status().code(), Code::kInvalidArgument)
          << label << ": " << wanted["error"];
    } else if (result.ok()) {
      EXPECT_EQ(*result, wanted["expected"].get<std::string>()) << label;
    } else {
      ADD_FAILURE() << label << ": " << result.status();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, ConversationTest,
                         ::testing::Values("demo", "llama3_2", "qwen2_5",
                                           "qwen3"),
                         [](const auto& test) { return test.param; });

// ---- The interface

TEST(ChatTemplateTest, RaisedMessagesComeBackAsTheyAre) {
  const Status status =
      Render("{{ raise_exception('Roles must alternate') }}").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(MessageOf(status), "Roles must alternate");
}

TEST(ChatTemplateTest, ErrorsNameLineAndReason) {
  const Status evaluation = Render("a\nb\n{{ missing.x }}").status();
  EXPECT_EQ(evaluation.code(), Code::kInvalidArgument);
  EXPECT_THAT(MessageOf(evaluation), HasSubstr("line 3"));
  EXPECT_THAT(MessageOf(evaluation), HasSubstr("'missing' is undefined"));

  const Status syntax = Render("a\n{% nosuch %}").status();
  EXPECT_EQ(syntax.code(), Code::kInvalidArgument);
  EXPECT_THAT(MessageOf(syntax), HasSubstr("line 2"));
  EXPECT_THAT(MessageOf(syntax), HasSubstr("'nosuch'"));
}

TEST(ChatTemplateTest, WithoutATimeStrftimeNowIsNotDefined) {
  const std::string source =
      "{% if strftime_now is defined %}{{ strftime_now('%Y') }}"
      "{% else %}none{% endif %}";
  EXPECT_EQ(*Render(source, ordered_json::object(), {}), "none");
  EXPECT_EQ(*Render(source), "2026");
}

TEST(ChatTemplateTest, TheContextComesBeforeTheVariables) {
  const StatusOr<ChatTemplate> chat_template =
      ChatTemplate::Parse("{{ bos_token }}{{ eos_token }}",
                          {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  ASSERT_TRUE(chat_template.ok());
  EXPECT_EQ(*chat_template->Render({{"eos_token", "!"}}), "<s>!");
}

TEST(ChatTemplateTest, AContextThatIsNoObjectIsRefused) {
  EXPECT_EQ(Render("x", ordered_json::array()).status().code(),
            Code::kInvalidArgument);
}

TEST(ChatTemplateTest, BytesThatAreNoCharactersPassThrough) {
  const ordered_json context = {{"x", "a\xff\xc3(b"}};
  EXPECT_EQ(*Render("{{ x }}|{{ x|length }}|{{ x[1:2] }}|{{ x|upper|trim }}",
                    context),
            "a\xff\xc3(b|5|\xff|A\xff\xc3(B");
}

TEST(ChatTemplateTest, SaysWhetherItWalksOverContentParts) {
  const auto takes = [](const std::string& source) {
    return ChatTemplate::Parse(source)->takes_content_parts();
  };
  EXPECT_TRUE(takes("{% for p in message.content %}{% endfor %}"));
  EXPECT_TRUE(takes("{% for p in m['content'] | list %}{% endfor %}"));
  EXPECT_FALSE(takes("{% for m in messages %}{{ m.content }}{% endfor %}"));
}

TEST(ChatTemplateTest, OneTemplateServesManyThreads) {
  const StatusOr<ChatTemplate> chat_template =
      ChatTemplate::FromModelFolder(kTestdata + "/qwen3");
  ASSERT_TRUE(chat_template.ok());
  const auto context = [](int i) {
    return ordered_json{
        {"messages",
         {{{"role", "user"}, {"content", "thread " + std::to_string(i)}}}}};
  };
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 50; ++n) {
        results[i] = *chat_template->Render(context(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(results[i], *chat_template->Render(context(i)));
  }
}

// ---- Model folders

class ModelFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) /
        ("chat_template_" +
         std::string(
             ::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  StatusOr<std::string> RenderFolder(const ordered_json& context,
                                     const ChatRenderOptions& options = {}) {
    ASSIGN_OR_RETURN(const ChatTemplate chat_template,
                     ChatTemplate::FromModelFolder(folder_.string()));
    return chat_template.Render(context, options);
  }

  std::filesystem::path folder_;
};

TEST_F(ModelFolderTest, SpecialTokensMayBeStringsOrObjects) {
  Write("tokenizer_config.json", R"({
    "bos_token": {"__type": "AddedToken", "content": "<s>"},
    "eos_token": "</s>", "pad_token": null, "add_bos_token": true,
    "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"
  })");
  EXPECT_EQ(*RenderFolder(ordered_json::object()), "<s></s>False");
}

TEST_F(ModelFolderTest, TheJinjaFileComesFirst) {
  Write("tokenizer_config.json",
        R"({"bos_token": "<s>", "chat_template": "old"})");
  Write("chat_template.jinja", "new {{ bos_token }}\n");
  EXPECT_EQ(*RenderFolder(ordered_json::object()), "new <s>");
}

TEST_F(ModelFolderTest, WhatIsThereButCannotBeReadIsAnError) {
  Write("tokenizer_config.json", R"({"chat_template": "old"})");
  std::filesystem::create_directory(folder_ / "chat_template.jinja");
  EXPECT_EQ(RenderFolder(ordered_json::object()).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ModelFolderTest, NamedTemplatesAreChosenByToolsOrName) {
  Write("tokenizer_config.json", R"({"chat_template": [
    {"name": "default", "template": "plain"},
    {"name": "tool_use", "template": "tools"},
    {"name": "rag", "template": "documents"}]})");
  EXPECT_EQ(*RenderFolder(ordered_json::object()), "plain");
  EXPECT_EQ(*RenderFolder({{"tools", nullptr}}), "plain");
  EXPECT_EQ(*RenderFolder({{"tools", ordered_json::array({1})}}), "tools");
  EXPECT_EQ(*RenderFolder(ordered_json::object(), {.template_name = "rag"}),
            "documents");
  const Status missing =
      RenderFolder(ordered_json::object(), {.template_name = "x"}).status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(MessageOf(missing), HasSubstr("default, tool_use, rag"));
}

TEST_F(ModelFolderTest, AFolderWithoutATemplateIsNotFound) {
  EXPECT_EQ(RenderFolder({}).status().code(), Code::kNotFound);
  Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(RenderFolder({}).status().code(), Code::kNotFound);
}

TEST_F(ModelFolderTest, MalformedFilesNameFileAndField) {
  for (const char* text : {"{", "[]", R"({"chat_template": 3})",
                           R"({"chat_template": [{"name": "x"}]})",
                           R"({"chat_template": "{% if %}"})"}) {
    Write("tokenizer_config.json", text);
    const Status status = RenderFolder({}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(MessageOf(status), HasSubstr("tokenizer_config.json")) << text;
  }
}

TEST_F(ModelFolderTest, DeepJsonIsRefused) {
  Write("tokenizer_config.json", R"({"chat_template": )" +
                                     std::string(100000, '[') +
                                     std::string(100000, ']') + "}");
  EXPECT_EQ(RenderFolder({}).status().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace tidepool::model
