// Bodies of every endpoint: parsed or refused, never anything else.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dataplane/conductor/api_error.h"
#include "dataplane/conductor/openai_request.h"

using tidepool::conductor::JoinTextParts;
using tidepool::conductor::RequestLimits;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1),
                              size - 1);
  static constexpr RequestLimits kLimits{.vocab_size = 32000,
                                         .max_model_len = 2048};
  const auto check = [](const tidepool::Status& status) {
    if (status.ok()) return;
    const auto error = tidepool::conductor::ToApiError(status);
    if (error.status != 400 || error.message.empty()) __builtin_trap();
  };
  switch (data[0] % 4) {
    case 0:
      check(tidepool::conductor::ParseCompletion(body, kLimits, {}).status());
      break;
    case 1: {
      const auto call = tidepool::conductor::ParseChat(body, kLimits, {});
      check(call.status());
      if (call.ok()) JoinTextParts(*call->chat.context);
      break;
    }
    case 2:
      check(tidepool::conductor::ParseTokenize(body).status());
      break;
    default:
      check(tidepool::conductor::ParseDetokenize(body, 32000).status());
  }
  return 0;
}
