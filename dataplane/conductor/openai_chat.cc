#include <nlohmann/json.hpp>
#include <utility>

#include "dataplane/conductor/openai_request.h"
#include "dataplane/conductor/request_fields.h"

namespace tidepool::conductor {

namespace dom = simdjson::dom;
using nlohmann::ordered_json;

namespace internal {
namespace {

constexpr size_t kMessagesMax = 16384;
constexpr size_t kPartsMax = 4096;
constexpr size_t kToolsMax = 1024;
constexpr size_t kDocumentsMax = 4096;
constexpr size_t kNameBytesMax = 512;

// Text parts only: what a text model can be asked.
Status CheckContent(const JsonField& content) {
  if (content.is_null() || content.is_string()) return OkStatus();
  if (!content.is_array())
    return content.Bad("must be a string or a list of text parts");
  ASSIGN_OR_RETURN(const std::vector<JsonField> parts,
                   content.Array(kPartsMax));
  for (const JsonField& part : parts) {
    ASSIGN_OR_RETURN(const dom::object object, part.Object());
    std::string_view type, text;
    if (object["type"].get(type) != simdjson::SUCCESS)
      return part.Bad("must have a `type`");
    if (type != "text")
      return UnsupportedField(part.path() + ".type",
                              "this model takes only `text` parts");
    if (object["text"].get(text) != simdjson::SUCCESS)
      return part.Bad("must have a string `text`");
  }
  return OkStatus();
}

// Arguments come as a string of JSON, templates walk over an object.
Status ParseArguments(const std::string& path, ordered_json& calls) {
  if (!calls.is_array()) return BadField(path, "must be a list of tool calls");
  for (ordered_json& call : calls) {
    if (!call.is_object() || !call.contains("function")) continue;
    ordered_json& function = call["function"];
    if (!function.is_object() || !function.contains("arguments")) continue;
    ordered_json& arguments = function["arguments"];
    // A call without arguments is told in either way.
    if (arguments.is_null() || arguments == "")
      arguments = ordered_json::object();
    if (!arguments.is_string()) continue;
    JsonBody parsed;
    if (!parsed.Parse(arguments.get_ref<const std::string&>()).ok() ||
        !parsed.Object().ok())
      return BadField(path,
                      "has `function.arguments` that are not a JSON object");
    arguments = ToTree(parsed.root());
  }
  return OkStatus();
}

Status CheckMessage(const JsonField& field, ordered_json& messages) {
  ASSIGN_OR_RETURN(const dom::object object, field.Object());
  std::string_view role;
  if (object["role"].get(role) != simdjson::SUCCESS || role.empty())
    return field.Bad("must have a `role`");
  dom::element content;
  if (object["content"].get(content) == simdjson::SUCCESS)
    RETURN_IF_ERROR(CheckContent({field.path() + ".content", content}));
  ordered_json message = ToTree(field.value());
  if (role == "developer") message["role"] = "system";
  if (message.contains("tool_calls") && !message["tool_calls"].is_null())
    RETURN_IF_ERROR(
        ParseArguments(field.path() + ".tool_calls", message["tool_calls"]));
  messages.push_back(std::move(message));
  return OkStatus();
}

// Lists of objects, whose meaning is the template's.
Status ReadObjects(const JsonField& field, size_t count_max,
                   std::unique_ptr<ordered_json>& target) {
  ASSIGN_OR_RETURN(const std::vector<JsonField> entries,
                   field.Array(count_max));
  for (const JsonField& entry : entries)
    RETURN_IF_ERROR(entry.Object().status());
  if (!entries.empty())
    target = std::make_unique<ordered_json>(ToTree(field.value()));
  return OkStatus();
}

}  // namespace

ChatFields::ChatFields() = default;
ChatFields::ChatFields(ChatFields&&) noexcept = default;
ChatFields::~ChatFields() = default;

Status ReadMessages(const JsonField& field, ChatFields& chat) {
  ASSIGN_OR_RETURN(const std::vector<JsonField> entries,
                   field.Array(kMessagesMax));
  if (entries.empty()) return field.Bad("must not be empty");
  chat.messages = std::make_unique<ordered_json>(ordered_json::array());
  for (const JsonField& entry : entries)
    RETURN_IF_ERROR(CheckMessage(entry, *chat.messages));
  return OkStatus();
}

Status ReadTools(const JsonField& field, ChatFields& chat) {
  return ReadObjects(field, kToolsMax, chat.tools);
}

Status ReadDocuments(const JsonField& field, ChatFields& chat) {
  return ReadObjects(field, kDocumentsMax, chat.documents);
}

Status ReadToolChoice(const JsonField& field, ChatFields& chat) {
  if (!field.is_string())
    return UnsupportedField("tool_choice",
                            "a choice of one tool needs structured output");
  ASSIGN_OR_RETURN(const std::string choice, field.String(kNameBytesMax));
  if (choice == "required")
    return UnsupportedField("tool_choice",
                            "`required` needs structured output");
  if (choice != "auto" && choice != "none")
    return field.Bad("must be `auto` or `none`");
  chat.tools_allowed = choice == "auto";
  return OkStatus();
}

Status ReadTemplateKwargs(const JsonField& field, ChatFields& chat) {
  ASSIGN_OR_RETURN(const dom::object object, field.Object());
  for (const auto& [key, value] : object)
    for (const std::string_view own :
         {"messages", "tools", "documents", "add_generation_prompt"})
      if (key == own) return field.Bad(fmt::format("must not have `{}`", key));
  chat.kwargs = std::make_unique<ordered_json>(ToTree(field.value()));
  return OkStatus();
}

StatusOr<ChatPrompt> ChatFields::Build() {
  if (!messages) return BadField("messages", "is required");
  auto context = std::make_shared<ordered_json>(ordered_json::object());
  if (kwargs) *context = std::move(*kwargs);
  (*context)["messages"] = std::move(*messages);
  (*context)["add_generation_prompt"] = add_generation_prompt;
  if (tools && tools_allowed) (*context)["tools"] = std::move(*tools);
  if (documents) (*context)["documents"] = std::move(*documents);
  if (!reasoning_effort.empty())
    (*context)["reasoning_effort"] = reasoning_effort;
  return ChatPrompt{.context = std::move(context)};
}

}  // namespace internal

std::shared_ptr<const ordered_json> JoinTextParts(const ordered_json& context) {
  auto joined = std::make_shared<ordered_json>(context);
  for (ordered_json& message : (*joined)["messages"]) {
    ordered_json& content = message["content"];
    if (content.is_string()) continue;
    std::string text;
    for (const ordered_json& part : content) {
      if (&part != &content.front()) text += '\n';
      text += part.at("text").get_ref<const std::string&>();
    }
    content = std::move(text);
  }
  return joined;
}

}  // namespace tidepool::conductor
