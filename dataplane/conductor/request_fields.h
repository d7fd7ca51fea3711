// What the request parsers share.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "dataplane/base/status.h"
#include "dataplane/conductor/json_fields.h"
#include "dataplane/conductor/openai_request.h"

namespace tidepool::conductor::internal {

// A chat as it is being read.
struct ChatFields {
  ChatFields();
  ChatFields(ChatFields&&) noexcept;
  ~ChatFields();

  bool tools_allowed = true;  // tool_choice other than "none"
  std::unique_ptr<nlohmann::ordered_json> messages, tools, documents, kwargs;
  std::string reasoning_effort;
  bool add_generation_prompt = true;

  // Errors: kInvalidArgument without messages.
  StatusOr<ChatPrompt> Build();
};

// A generation call as it is being read.
struct CallFields {
  GenerationCall call;
  const RequestLimits* limits = nullptr;
  ChatFields chat;
  bool chat_logprobs = false;
  std::optional<int32_t> top_logprobs;
  std::optional<int64_t> max_completion_tokens, best_of;
  bool has_stream_options = false;
};

using CallRule = FieldRule<CallFields>;

Status ReadMessages(const JsonField& field, ChatFields& chat);
Status ReadTools(const JsonField& field, ChatFields& chat);
Status ReadToolChoice(const JsonField& field, ChatFields& chat);
Status ReadDocuments(const JsonField& field, ChatFields& chat);
Status ReadTemplateKwargs(const JsonField& field, ChatFields& chat);

// Known and without effect on the answer.
template <typename Target>
Status Ignore(const JsonField&, Target&) {
  return OkStatus();
}

// Rules of fields that both generation endpoints know.
extern const std::array<CallRule, 45> kCommonRules;

// `common` and `own`, as one array.
template <typename Rule, size_t kA, size_t kB>
constexpr std::array<Rule, kA + kB> Join(const std::array<Rule, kA>& a,
                                         const std::array<Rule, kB>& b) {
  std::array<Rule, kA + kB> all{};
  for (size_t i = 0; i < kA; ++i) all[i] = a[i];
  for (size_t i = 0; i < kB; ++i) all[kA + i] = b[i];
  return all;
}

// Checks that need all fields, and what follows from them.
StatusOr<GenerationCall> FinishCall(CallFields fields);

}  // namespace tidepool::conductor::internal
