#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "dataplane/model/chat_template.h"

namespace tidepool::model {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

std::string Repeat(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

Status RenderStatus(const std::string& source,
                    const ordered_json& context = ordered_json::object(),
                    const ChatRenderOptions& options = {}) {
  const StatusOr<ChatTemplate> chat_template = ChatTemplate::Parse(source);
  if (!chat_template.ok()) return chat_template.status();
  return chat_template->Render(context, options).status();
}

// Tighter than the defaults, for the sake of sanitizer builds.
void ExpectExhausted(const std::string& source, std::string_view bound = "",
                     int64_t steps_max = 3'000'000) {
  const ChatRenderOptions options = {
      .limits = {.steps_max = steps_max, .memory_bytes_max = 32 << 20}};
  const Status status = RenderStatus(source, ordered_json::object(), options);
  EXPECT_EQ(status.code(), Code::kResourceExhausted)
      << source.substr(0, 80) << ": " << status;
  EXPECT_THAT(std::string(MessageOf(status)), HasSubstr(std::string(bound)));
}

TEST(ChatTemplateLimitsTest, DeepSourceIsRefused) {
  constexpr int kDeep = 100'000;
  const std::pair<const char*, const char*> brackets[] = {
      {"(", ")"},  {"[", "]"},      {"{1:", "}"},      {"f(", ")"},
      {"a[", "]"}, {"'a'|f(", ")"}, {"1 is eq(", ")"}, {"1 if ", " else 2"},
      {"-", ""},   {"not ", ""}};
  for (const auto& [opening, closing] : brackets) {
    ExpectExhausted("{{ " + Repeat(opening, kDeep) + "1" +
                    Repeat(closing, kDeep) + " }}");
  }
  ExpectExhausted(Repeat("{% if 1 %}", kDeep));
  ExpectExhausted(Repeat("{%set a%}", kDeep));
  ExpectExhausted("{% for " + Repeat("(", kDeep) + "a" + Repeat(")", kDeep) +
                  " in b %}");
}

TEST(ChatTemplateLimitsTest, LongChainsAreRefused) {
  constexpr int kLong = 100'000;
  for (const char* link : {"+1", ".a", "[0]", "|abs", " or 1", " and 1", "()",
                           "**1", "[1:]", " if 1 else 2"}) {
    ExpectExhausted("{{ 1" + Repeat(link, kLong) + " }}");
  }
}

TEST(ChatTemplateLimitsTest, HugeSourceIsRefused) {
  ExpectExhausted(std::string(2 << 20, 'x'));
}

TEST(ChatTemplateLimitsTest, GrowingValuesAreRefused) {
  constexpr std::string_view kMemory = "memory_bytes_max";
  ExpectExhausted("{{ 'a' * 10**9 }}", kMemory);
  ExpectExhausted("{{ [1] * 10**9 }}", kMemory);
  ExpectExhausted("{{ 'a' * 10**18 }}", kMemory);
  ExpectExhausted("{{ [1,2,3] * 2**62 }}", kMemory);
  ExpectExhausted("{{ 'x'.center(10**10) }}", kMemory);
  ExpectExhausted("{{ 'a\nb'|indent(10**9) }}", kMemory);
  ExpectExhausted("{{ ('a'*10**4).replace('a', 'b'*10**5) }}", kMemory);
  ExpectExhausted("{{ (['a']*10**4)|join('b'*10**5) }}", kMemory);
  ExpectExhausted("{{ '%1000000000s' % 'a' }}");
  ExpectExhausted("{{ '{:1000000000}'.format('a') }}");
  ExpectExhausted("{{ range(10**9) }}");
  ExpectExhausted(
      "{% set ns = namespace(s='a') %}{% for i in range(64) %}"
      "{% set ns.s = ns.s + ns.s %}{% endfor %}",
      kMemory);
  ExpectExhausted(
      "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}"
      "{% set ns.l = ns.l + ns.l %}{% endfor %}",
      kMemory);
  ExpectExhausted(
      "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% else %}"
      "{{ 'x' * 1000000 }}{% endif %}{% endmacro %}{{ f(20) }}",
      kMemory);
}

TEST(ChatTemplateLimitsTest, LongLoopsEndInTheStepBudget) {
  const std::string loop = "{% for i in range(100000) %}";
  ExpectExhausted(loop + loop + "{% endfor %}{% endfor %}", "steps_max");
  ExpectExhausted("{% set big = 'a' * 10**6 %}" + loop +
                  "{% if big == big ~ '' %}"
                  "{% endif %}{% endfor %}");
  ExpectExhausted("{% set l = range(100000)|list %}" + loop +
                      "{% if -1 in l %}{% endif %}{% endfor %}",
                  "steps_max");
}

// Each walks through something long for the price of a few nodes.
TEST(ChatTemplateLimitsTest, OperationsPayForWhatTheyRead) {
  constexpr int64_t kSteps = 200'000;
  const std::string numbers = "{% set l = range(100000)|list %}";
  const std::string blanks = "{% set l = [''] * 100000 %}";
  const std::string text = "{% set s = '1' * 1000000 %}";
  const std::string affixes = "{% set l = ('a',) * 100000 %}";
  for (const std::string& work :
       {numbers + "#l|max", numbers + "#l|min", numbers + "#l|sum",
        blanks + "#''.join(l)", text + "#s|int", text + "#s|float",
        text + "#s.startswith(s)", text + "#s.removesuffix(s)",
        affixes + "#'b'.startswith(l)"}) {
    const size_t mark = work.find('#');
    ExpectExhausted(work.substr(0, mark) +
                        "{% for i in range(100000) %}{% if " +
                        work.substr(mark + 1) + " %}{% endif %}{% endfor %}",
                    "steps_max", kSteps);
  }
  ExpectExhausted(
      "{% set s = 'a' * 1000000 %}{{ s.strip('b' * 1000000 ~ 'a') }}",
      "steps_max", kSteps);
  std::string names;
  for (int i = 0; i < 1000; ++i) {
    names += "{%set a" + std::to_string(i) + "=1%}";
  }
  ExpectExhausted(names +
                      "{% for i in range(100000) %}{% if a999 %}{% endif %}"
                      "{% endfor %}",
                  "steps_max", kSteps);
}

// At every place nearly all of what is looked for is there.
TEST(ChatTemplateLimitsTest, LookingForLongTextsEnds) {
  const std::string source =
      "{% set s = 'a' * 2000000 %}{% set p = 'a' * 1000000 ~ 'b' %}"
      "{% set q = 'b' ~ 'a' * 1000000 %}";
  for (const char* work :
       {"p in s", "s.find(p) + 1", "s.rfind(q) + 1", "s.count(p)",
        "(s.split(p)|length) - 1", "(s.rsplit(q)|length) - 1",
        "s.partition(p)[1]", "s.rpartition(q)[1]", "s.replace(p, '') != s"}) {
    const auto chat_template = ChatTemplate::Parse(
        source + "{% if " + work + " %}found{% else %}none{% endif %}");
    ASSERT_TRUE(chat_template.ok()) << chat_template.status();
    const auto text = chat_template->Render(ordered_json::object());
    ASSERT_TRUE(text.ok()) << work << ": " << text.status();
    EXPECT_EQ(*text, "none") << work;
  }
}

TEST(ChatTemplateLimitsTest, LongTextsAreFoundFromBothEnds) {
  const auto chat_template = ChatTemplate::Parse(
      "{% set p = 'ab' * 20 %}{% set s = 'x' ~ p ~ 'y' ~ p ~ 'z' %}"
      "{{ s.split(p, 1)[0] }} {{ s.rsplit(p)|join('-') }} "
      "{{ s.rsplit(p, 1)[1] }} {{ s.find(p) }} {{ s.rfind(p) }} "
      "{{ s.count(p) }} {{ s.replace(p, '+') }} {{ s.rpartition(p)[2] }}");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  const auto text = chat_template->Render(ordered_json::object());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "x x-y-z z 1 42 2 x+y+z z");
}

TEST(ChatTemplateLimitsTest, OutputIsBounded) {
  ExpectExhausted(
      "{% set x = 'a' * 10**6 %}{% for i in range(1000) %}{{ x }}{% endfor %}",
      "output_bytes_max");
  const ChatRenderOptions tight = {.limits = {.output_bytes_max = 3}};
  EXPECT_TRUE(RenderStatus("abc", ordered_json::object(), tight).ok());
  EXPECT_EQ(RenderStatus("abcd", ordered_json::object(), tight).code(),
            Code::kResourceExhausted);
}

TEST(ChatTemplateLimitsTest, RecursionIsBounded) {
  ExpectExhausted("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
                  "depth_max");
  ExpectExhausted(
      "{% set ns = namespace() %}{% set ns.x = [ns] %}"
      "{% macro f(x) %}{% call f(x) %}{% endcall %}{% endmacro %}{{ f(1) }}",
      "depth_max");
  ExpectExhausted(
      "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}"
      "{% set ns.l = [ns.l] %}{% endfor %}"
      "{% for x in ns.l recursive %}{{ loop(x) }}{% endfor %}",
      "depth_max");
}

TEST(ChatTemplateLimitsTest, CyclesAndDeepValuesEndInAnError) {
  const std::string cycle =
      "{% set ns = namespace() %}{% set ns.self = ns %}"
      "{% set ns.list = [ns] %}";
  ExpectExhausted(cycle + "{{ ns }}", "deeper");
  ExpectExhausted(cycle + "{{ ns.list }}", "deeper");
  const std::string deep =
      "{% set ns = namespace(a=[], b=[]) %}{% for i in range(100000) %}"
      "{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}";
  ExpectExhausted(deep + "{{ ns.a }}", "deeper");
  ExpectExhausted(deep + "{{ ns.a|tojson }}", "deeper");
  ExpectExhausted(deep + "{{ ns.a == ns.b }}", "deeper");
  ExpectExhausted(deep + "{{ ns.a < ns.b }}", "deeper");
  EXPECT_TRUE(RenderStatus(deep + "{{ ns.a|length }}").ok());
}

TEST(ChatTemplateLimitsTest, SharedValuesDoNotBlowUp) {
  const std::string doubling =
      "{% set ns = namespace(a=[], b=[]) %}{% for i in range(100) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
  ExpectExhausted(doubling + "{{ ns.a }}");
  ExpectExhausted(doubling + "{{ ns.a|tojson }}");
  ExpectExhausted(doubling + "{{ ns.a == ns.b }}");
}

TEST(ChatTemplateLimitsTest, DeepContextsAreRefused) {
  ordered_json deep = ordered_json::array();
  for (int i = 0; i < 1000; ++i) {
    ordered_json outer = ordered_json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  ordered_json context = ordered_json::object();
  context["messages"] = std::move(deep);
  EXPECT_EQ(RenderStatus("x", context).code(), Code::kResourceExhausted);
}

TEST(ChatTemplateLimitsTest, IntegersDoNotWrap) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ 3037000500 * 3037000500 }}", "{{ 2 ** 63 }}", "{{ 2 ** 10**18 }}",
        "{{ -(-9223372036854775807 - 1) }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ (-9223372036854775807 - 1)|abs }}",
        "{{ 9223372036854775807|round(-1) }}", "{{ 99999999999999999999 }}",
        "{{ 10.0 ** 400 }}"}) {
    EXPECT_EQ(RenderStatus(source).code(), Code::kInvalidArgument) << source;
  }
}

TEST(ChatTemplateLimitsTest, OneRenderingsBudgetIsNotAnothers) {
  const StatusOr<ChatTemplate> chat_template =
      ChatTemplate::Parse("{% for i in range(1000) %}{{ i }}{% endfor %}");
  ASSERT_TRUE(chat_template.ok());
  const ChatRenderOptions tight = {.limits = {.steps_max = 100}};
  EXPECT_EQ(
      chat_template->Render(ordered_json::object(), tight).status().code(),
      Code::kResourceExhausted);
  EXPECT_TRUE(chat_template->Render(ordered_json::object()).ok());
}

}  // namespace
}  // namespace tidepool::model
