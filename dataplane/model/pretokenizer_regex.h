// Regular expressions of Hugging Face's files, which are written for
// Oniguruma, run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dataplane/base/status.h"

namespace tidepool::model::internal {

struct RegexMatch {
  size_t start = 0;
  size_t end = 0;
};

// Thread-safe after compilation.
class Regex {
 public:
  // `field` names the pattern in errors. Errors: kInvalidArgument for a
  // malformed pattern, kUnimplemented where Oniguruma's syntax differs from
  // PCRE2's in a way that is not translated.
  static StatusOr<Regex> Compile(std::string_view pattern,
                                 std::string_view field);

  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The first match at or after `from` in `text`, valid UTF-8; nullopt if
  // there is none. Errors: kResourceExhausted beyond the match limit.
  StatusOr<std::optional<RegexMatch>> Find(std::string_view text,
                                           size_t from) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

// Oniguruma's pattern in PCRE2's words. Errors: as Regex::Compile.
StatusOr<std::string> TranslateRegex(std::string_view pattern,
                                     std::string_view field);

}  // namespace tidepool::model::internal
