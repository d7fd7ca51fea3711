// The model as the gateway sees it: names, text to tokens, limits, defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/conductor/openai_request.h"
#include "dataplane/model/chat_template.h"
#include "dataplane/model/tokenizer.h"
#include "tidepool/worker/v1/types.pb.h"

namespace tidepool::conductor {

// Immutable and thread-safe.
class ServingModel {
 public:
  struct Parts {
    std::vector<std::string>
        names;  // at least one; the first goes into metrics
    std::unique_ptr<model::Tokenizer> tokenizer;  // null: ids only
    std::optional<model::ChatTemplate> chat_template;
    int64_t vocab_size = 0;
    int64_t max_model_len = 0;
    worker::v1::SamplingParams sampling_defaults;
    int64_t created = 0;  // Unix seconds
  };

  explicit ServingModel(Parts parts) : parts_(std::move(parts)) {}

  // Reads a model folder. `names` empty: the folder's path. `max_model_len` 0:
  // as the model says.
  // Errors: those of the parsers; kInvalidArgument if max_model_len is over
  // what the model can do.
  static StatusOr<ServingModel> Load(const std::string& directory,
                                     std::vector<std::string> names,
                                     int64_t max_model_len);

  const std::vector<std::string>& names() const { return parts_.names; }
  const model::Tokenizer* tokenizer() const { return parts_.tokenizer.get(); }
  int64_t max_model_len() const { return parts_.max_model_len; }
  int64_t created() const { return parts_.created; }
  RequestLimits limits() const {
    return {.vocab_size = parts_.vocab_size,
            .max_model_len = parts_.max_model_len};
  }
  const worker::v1::SamplingParams& sampling_defaults() const {
    return parts_.sampling_defaults;
  }

  // Errors: kNotFound with OpenAI's code.
  Status CheckName(std::string_view name) const;

  // Any text that a body can carry. `param` is the field that errors name.
  // Errors: kInvalidArgument (no tokenizer).
  StatusOr<std::vector<int32_t>> Tokenize(std::string_view text,
                                          bool add_special_tokens,
                                          std::string_view param) const;
  // A text that shall be continued. Errors: as Tokenize; kInvalidArgument
  // (longer than the context, with OpenAI's code; not one token; a token that
  // the tokenizer knows and the model does not).
  StatusOr<std::vector<int32_t>> TokenizePrompt(std::string_view text,
                                                bool add_special_tokens,
                                                std::string_view param) const;
  // The prompt's text. Errors: kInvalidArgument (no tokenizer or template; the
  // template refuses the conversation).
  StatusOr<std::string> Render(const ChatPrompt& chat) const;

 private:
  StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                        const model::EncodeOptions& options,
                                        std::string_view param) const;

  Parts parts_;
};

}  // namespace tidepool::conductor
