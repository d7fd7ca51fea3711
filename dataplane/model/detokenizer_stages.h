// The decoders of a tokenizer.json as a stream: tokens go in one at a time,
// text comes out as soon as it is certain.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/model/tokenizer_spec.h"

namespace tidepool::model::internal {

using DecoderSteps = std::optional<std::vector<DecoderStep>>;

// Errors: kUnimplemented for orders of steps that make no sense in a stream.
Status CheckDecoder(const DecoderSteps& steps);

// True if all that decoding does is joining bytes.
bool IsByteLevelOnly(const DecoderSteps& steps);

// The bytes that `token` stands for in the middle of a text.
std::string BytesOfToken(const DecoderSteps& steps, std::string_view token);

// One stage; what it makes goes to the next. A token may come in several
// chunks of whole characters, the last of them with `end`.
// Externally synchronized.
class DecoderStage {
 public:
  virtual ~DecoderStage() = default;
  virtual void Put(std::string_view chunk, bool end) = 0;
  // After the last token; the stage then starts afresh.
  virtual void Finish() = 0;
};

// The stages for `steps`, the last of which appends to `out`, which must
// outlive them. `tokens_are_bytes`: tokens come as the bytes that a leading
// ByteLevel would make of them, not always whole characters.
class DecoderPipeline {
 public:
  DecoderPipeline(const DecoderSteps& steps, bool tokens_are_bytes,
                  std::string& out);

  void Put(std::string_view token) { stages_.back()->Put(token, true); }
  void Finish() { stages_.back()->Finish(); }

 private:
  std::vector<std::unique_ptr<DecoderStage>> stages_;  // the last comes first
};

}  // namespace tidepool::model::internal
