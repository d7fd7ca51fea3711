// A model's chat template: a conversation in, the prompt's text out.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataplane/base/status.h"

namespace tidepool::model {

// What one rendering may use. Each bound that is reached ends it with
// kResourceExhausted and a message that names the bound.
struct ChatTemplateLimits {
  // Evaluated nodes, plus one for every 64 bytes or 16 values that an
  // operation reads or makes.
  int64_t steps_max = 10'000'000;
  int64_t output_bytes_max = 16 << 20;
  // Values made on the way, over the whole rendering; the context's own
  // strings are borrowed and do not count. At most 4 GiB.
  int64_t memory_bytes_max = 128 << 20;
  // Nested statements, expressions and macro calls together.
  int32_t depth_max = 1000;
};

struct ChatRenderOptions {
  ChatTemplateLimits limits;
  // The time `strftime_now(format)` shows, in UTC. Without it the function is
  // not defined, and templates that test for it fall back to a fixed date.
  std::optional<double> now_unix_seconds;
  // Which of a model's named templates. Empty: "tool_use" where there is one
  // and the context has tools, else "default".
  std::string template_name;
};

// Jinja as Hugging Face's transformers configures it (trim_blocks,
// lstrip_blocks, loop controls, an immutable sandbox), with what chat templates
// use of it: chat_template.md has the list and the differences.
//
// Immutable; rendering is thread-safe. Rendering uses up to about 1 MiB of
// stack at the default depth.
class ChatTemplate {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  // `variables` (such as {"bos_token", "<s>"}) are what a name means that the
  // context does not have.
  // Errors: kInvalidArgument naming line and reason; kResourceExhausted above
  // 1 MiB of source or 200 nested statements and expressions.
  static StatusOr<ChatTemplate> Parse(std::string source,
                                      Variables variables = {});

  // The template of a Hugging Face folder: `chat_template.jinja`, else
  // `chat_template` in `tokenizer_config.json` (one, or a list of {name,
  // template}). Special tokens of `tokenizer_config.json` (`bos_token`,
  // `eos_token`, `unk_token`, `pad_token`…; strings or {"content": …}) become
  // variables.
  // Errors: kNotFound if the folder has no template; kInvalidArgument naming
  // file and field; as Parse.
  static StatusOr<ChatTemplate> FromModelFolder(const std::string& directory);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `context` is an object: `messages`, `add_generation_prompt`, and where
  // given `tools`, `documents` and further keyword arguments. It must not
  // change during the call.
  // Errors: kInvalidArgument with the template's own message where it calls
  // raise_exception, with line and reason where it cannot be evaluated (a
  // missing attribute used, wrong types); kNotFound for an unknown
  // `template_name`; kResourceExhausted as ChatTemplateLimits says.
  StatusOr<std::string> Render(const nlohmann::ordered_json& context,
                               const ChatRenderOptions& options = {}) const;

  // Whether the template itself walks over a message's `content` parts
  // ([{"type": "text", …}]). Where it does not, callers join text parts into
  // one string first. Syntactic: a loop over something named `content`.
  bool takes_content_parts() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tidepool::model
