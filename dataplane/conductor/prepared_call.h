// From a parsed call to tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/conductor/openai_request.h"
#include "dataplane/conductor/serving_model.h"

namespace tidepool::conductor {

// A call with its prompts as tokens, ready to be submitted.
struct PreparedCall {
  GenerationCall call;  // sampling lacks only the seed of each choice
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::string> echo_texts;  // of each prompt, with `echo`
};

// Renders and tokenizes, checks against the context length, and completes the
// sampling parameters. Slow for long prompts.
// Errors: those of ServingModel; kInvalidArgument for what needs a tokenizer
// and finds none, and with code "context_length_exceeded".
StatusOr<PreparedCall> Prepare(GenerationCall call, const ServingModel& model);

}  // namespace tidepool::conductor
