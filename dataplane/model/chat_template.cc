#include "dataplane/model/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "dataplane/model/file_io.h"
#include "dataplane/model/jinja_evaluator.h"
#include "dataplane/model/jinja_json.h"
#include "dataplane/model/jinja_parser.h"

namespace tidepool::model {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kDefaultName = "default";
constexpr std::string_view kToolUseName = "tool_use";

struct NamedTemplate {
  std::string name;
  jinja::Template parsed;
};

StatusOr<std::optional<std::string>> ReadIfThere(const std::string& path) {
  StatusOr<std::string> text = ReadSmallFile(path);
  if (text.status().code() == Code::kNotFound) return std::nullopt;
  return text;
}

// nlohmann's parser is a loop, but copying and freeing what it made recurses.
StatusOr<ordered_json> ParseJson(std::string_view text,
                                 const std::string& file) {
  int depth = 0;
  const auto bounded = [&depth](int at, ordered_json::parse_event_t,
                                ordered_json&) {
    depth = std::max(depth, at);
    return at <= jinja::kValueDepthMax;
  };
  ordered_json json = ordered_json::parse(text, bounded, false);
  if (depth > jinja::kValueDepthMax) {
    return ResourceExhausted("{}: nested deeper than {}", file,
                             jinja::kValueDepthMax);
  }
  if (!json.is_object()) {
    return InvalidArgument("{}: not a JSON object", file);
  }
  return json;
}

// {"bos_token": "<s>", …} from strings or {"content": "<s>", …}.
ChatTemplate::Variables SpecialTokens(const ordered_json& config) {
  ChatTemplate::Variables variables;
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    const ordered_json* text = &value;
    if (value.is_object()) {
      const auto content = value.find("content");
      if (content == value.end()) continue;
      text = &*content;
    }
    if (text->is_string()) {
      variables.emplace_back(key, text->get<std::string>());
    }
  }
  return variables;
}

using Sources = std::vector<std::pair<std::string, std::string>>;

// What `chat_template` says: one template, or a list of {name, template}.
StatusOr<Sources> TemplateSources(const ordered_json& config,
                                  const std::string& file) {
  Sources sources;
  const auto field = config.find("chat_template");
  if (field == config.end() || field->is_null()) return sources;
  if (field->is_string()) {
    sources.emplace_back(kDefaultName, field->get<std::string>());
    return sources;
  }
  if (!field->is_array()) {
    return InvalidArgument("{}: chat_template is neither string nor list",
                           file);
  }
  for (const ordered_json& item : *field) {
    if (!item.is_object() || !item.contains("name") ||
        !item["name"].is_string() || !item.contains("template") ||
        !item["template"].is_string()) {
      return InvalidArgument(
          "{}: chat_template[{}] is not {{name, template}} of strings", file,
          sources.size());
    }
    sources.emplace_back(item["name"].get<std::string>(),
                         item["template"].get<std::string>());
  }
  return sources;
}

bool HasTools(const ordered_json& context) {
  const auto tools = context.find("tools");
  return tools != context.end() && !tools->is_null();
}

}  // namespace

struct ChatTemplate::Impl {
  std::vector<NamedTemplate> templates;
  Variables variables;

  static StatusOr<std::unique_ptr<const Impl>> Create(const Sources& sources,
                                                      Variables variables) {
    auto impl = std::make_unique<Impl>();
    impl->variables = std::move(variables);
    for (const auto& [name, source] : sources) {
      ASSIGN_OR_RETURN(jinja::Template parsed, jinja::ParseTemplate(source));
      impl->templates.push_back({name, std::move(parsed)});
    }
    return impl;
  }

  const NamedTemplate* Find(std::string_view name) const {
    const auto found = std::ranges::find(templates, name, &NamedTemplate::name);
    return found == templates.end() ? nullptr : &*found;
  }

  StatusOr<const NamedTemplate*> Select(std::string_view name,
                                        bool has_tools) const {
    const NamedTemplate* found = nullptr;
    if (!name.empty()) {
      found = Find(name);
    } else {
      if (has_tools) found = Find(kToolUseName);
      if (found == nullptr) found = Find(kDefaultName);
    }
    if (found != nullptr) return found;
    std::string names;
    for (const NamedTemplate& each : templates) {
      names += names.empty() ? "" : ", ";
      names += each.name;
    }
    return NotFound("no chat template '{}' among: {}",
                    name.empty() ? kDefaultName : name, names);
  }

  // The context, and behind it what it does not name.
  StatusOr<jinja::Value> Globals(jinja::Heap& heap,
                                 const ordered_json& context) const {
    ASSIGN_OR_RETURN(const jinja::Value given, jinja::FromJson(heap, context));
    std::vector<jinja::Entry> entries(given.entries().begin(),
                                      given.entries().end());
    for (const auto& [name, text] : variables) {
      if (context.contains(name)) continue;
      entries.push_back(
          {jinja::Value::String(name), jinja::Value::String(text)});
    }
    return heap.NewDict(entries);
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl)
    : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

StatusOr<ChatTemplate> ChatTemplate::Parse(std::string source,
                                           Variables variables) {
  const Sources sources = {{std::string(kDefaultName), std::move(source)}};
  ASSIGN_OR_RETURN(auto impl, Impl::Create(sources, std::move(variables)));
  return ChatTemplate(std::move(impl));
}

StatusOr<ChatTemplate> ChatTemplate::FromModelFolder(
    const std::string& directory) {
  std::string file = directory + "/tokenizer_config.json";
  ordered_json config = ordered_json::object();
  ASSIGN_OR_RETURN(const std::optional<std::string> config_text,
                   ReadIfThere(file));
  if (config_text.has_value()) {
    ASSIGN_OR_RETURN(config, ParseJson(*config_text, file));
  }
  const std::string jinja_file = directory + "/chat_template.jinja";
  ASSIGN_OR_RETURN(const std::optional<std::string> jinja_text,
                   ReadIfThere(jinja_file));
  Sources sources;
  if (jinja_text.has_value()) {
    file = jinja_file;
    sources.emplace_back(kDefaultName, *jinja_text);
  } else {
    ASSIGN_OR_RETURN(sources, TemplateSources(config, file));
  }
  if (sources.empty()) {
    return NotFound(
        "{}: no chat_template.jinja, and no chat_template in "
        "tokenizer_config.json",
        directory);
  }
  StatusOr<std::unique_ptr<const Impl>> impl =
      Impl::Create(sources, SpecialTokens(config));
  if (!impl.ok()) return Annotate(impl.status(), file);
  return ChatTemplate(*std::move(impl));
}

StatusOr<std::string> ChatTemplate::Render(
    const ordered_json& context, const ChatRenderOptions& options) const {
  if (!context.is_object()) {
    return InvalidArgument("chat template: the context is not an object");
  }
  ASSIGN_OR_RETURN(const NamedTemplate* const chosen,
                   impl_->Select(options.template_name, HasTools(context)));
  jinja::Heap heap(options.limits.memory_bytes_max, options.limits.steps_max);
  jinja::Runtime runtime{heap, options.now_unix_seconds, false};
  StatusOr<jinja::Value> globals = impl_->Globals(heap, context);
  if (!globals.ok()) {
    return Annotate(globals.status(), "chat template: the context");
  }
  return jinja::Evaluate(chosen->parsed, runtime, *globals, options.limits);
}

bool ChatTemplate::takes_content_parts() const {
  return std::ranges::any_of(impl_->templates, [](const NamedTemplate& each) {
    return each.parsed.loops_over_content;
  });
}

}  // namespace tidepool::model
