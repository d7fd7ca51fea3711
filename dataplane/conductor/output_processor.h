// From tokens to what the client reads: text, stop strings, the finish.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "dataplane/conductor/stop_matcher.h"
#include "dataplane/model/detokenizer.h"
#include "dataplane/model/tokenizer.h"

namespace tidepool::conductor {

enum class Finish { kNone, kStop, kLength };

// "stop", "length"; "" for kNone.
std::string_view NameOf(Finish finish);

struct OutputOptions {
  std::vector<std::string> stop;
  // Keeps the stop string, or the text of the token that ended the output.
  bool include_stop = false;
  bool skip_special_tokens = true;
  // Stop strings that begin in the text of the first so many tokens are not
  // looked for.
  int32_t min_tokens = 0;
};

// Of one choice. Externally synchronized.
class OutputProcessor {
 public:
  // `tokenizer` outlives this; without one there is no text.
  OutputProcessor(const model::Tokenizer* tokenizer,
                  std::span<const int32_t> prompt, OutputOptions options);

  struct Delta {
    std::string text;       // whole characters
    size_t num_tokens = 0;  // of those given, up to the stop string
    Finish finish = Finish::kNone;
    // What ended it: the stop string, the stop token id, or nothing (EOS,
    // length).
    std::variant<std::monostate, std::string, int32_t> stop_reason;
  };
  // `finish` is what the worker says: with kStop, the last token is what ended
  // it, `stop_token_id` if it was one of the request's own. Must not be called
  // after a delta that finishes.
  Delta Append(std::span<const int32_t> tokens, Finish finish,
               std::optional<int32_t> stop_token_id);

 private:
  // False once a stop string ends the output.
  bool Take(std::string_view text, Delta& delta);

  const OutputOptions options_;
  std::optional<model::IncrementalDetokenizer> detokenizer_;
  StopMatcher matcher_;
  int64_t num_tokens_ = 0;
};

}  // namespace tidepool::conductor
