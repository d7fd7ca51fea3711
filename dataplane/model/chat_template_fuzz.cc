// Any bytes as a template: it parses and renders within its budgets, or fails
// with one of the two documented codes.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "dataplane/model/chat_template.h"

namespace {

using tidepool::Code;
using tidepool::Status;
using tidepool::model::ChatRenderOptions;
using tidepool::model::ChatTemplate;

void CheckCode(const Status& status) {
  if (!status.ok() && status.code() != Code::kInvalidArgument &&
      status.code() != Code::kResourceExhausted) {
    std::abort();
  }
}

const nlohmann::ordered_json& Context() {
  static const nlohmann::ordered_json context = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "system", "content": " Be terse.\n"},
          {"role": "user", "content": [{"type": "text", "text": "h\u00e9"}]},
          {"role": "assistant", "content": null, "tool_calls":
            [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]}],
        "tools": [{"name": "f", "parameters": {}}], "s": "a b\nc", "n": 7,
        "l": [3, 1, 2], "d": {"b": 1, "a": -2}, "f": 2.5, "u": "\u65e5 \u00df",
        "big": 18446744073709551615, "add_generation_prompt": true})");
  return context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto parsed = ChatTemplate::Parse(
      std::string(reinterpret_cast<const char*>(data), size));
  CheckCode(parsed.status());
  if (!parsed.ok()) return 0;
  const ChatRenderOptions options = {.limits = {.steps_max = 20'000,
                                                .output_bytes_max = 1 << 20,
                                                .memory_bytes_max = 4 << 20,
                                                .depth_max = 200},
                                     .now_unix_seconds = 1767323045};
  const auto text = parsed->Render(Context(), options);
  CheckCode(text.status());
  if (text.ok() && text->size() > (1 << 20)) std::abort();
  return 0;
}
