#define PCRE2_CODE_UNIT_WIDTH 8
#include "dataplane/model/pretokenizer_regex.h"

#include <pcre2.h>

#include <utility>

#include "dataplane/base/check.h"

namespace tidepool::model::internal {
namespace {

// Far beyond what splitting text needs, far below a second.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;
constexpr size_t kJitStackBytesMax = 1 << 20;

// What matching writes to, one a thread.
struct Workspace {
  Workspace()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 * 1024, kJitStackBytesMax, nullptr)) {
    CHECK(data != nullptr && context != nullptr && stack != nullptr);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKiB);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Workspace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

Workspace& ThreadWorkspace() {
  thread_local Workspace workspace;
  return workspace;
}

std::string ErrorText(int error) {
  PCRE2_UCHAR buffer[128];
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  Code(pcre2_code* compiled, std::string_view name)
      : code(compiled), field(name) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
  std::string field;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

StatusOr<Regex> Regex::Compile(std::string_view pattern,
                               std::string_view field) {
  ASSIGN_OR_RETURN(const std::string translated,
                   TranslateRegex(pattern, field));
  int error = 0;
  size_t offset = 0;
  // Oniguruma's ^ and $ are those of lines.
  pcre2_code* compiled = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
      &offset, nullptr);
  if (compiled == nullptr) {
    return InvalidArgument("tokenizer.json: {}: {} in the regular expression",
                           field, ErrorText(error));
  }
  auto code = std::make_unique<Code>(compiled, field);
  // Without a compiler for this processor the interpreter does it.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

StatusOr<std::optional<RegexMatch>> Regex::Find(std::string_view text,
                                                size_t from) const {
  const Workspace& workspace = ThreadWorkspace();
  const int result = pcre2_match(
      code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
      PCRE2_NO_UTF_CHECK, workspace.data, workspace.context);
  if (result == PCRE2_ERROR_NOMATCH) return std::optional<RegexMatch>();
  if (result < 0) {
    return ResourceExhausted("{}: matching at byte {} of {}: {}", code_->field,
                             from, text.size(), ErrorText(result));
  }
  const size_t* bounds = pcre2_get_ovector_pointer(workspace.data);
  return std::optional(RegexMatch{bounds[0], bounds[1]});
}

}  // namespace tidepool::model::internal
