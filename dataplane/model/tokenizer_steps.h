// The processing steps that a tokenizer.json lists, from JSON. Sequences are
// flattened: their meaning is that of their parts one after the other.
#pragma once

#include <optional>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/model/tokenizer_json.h"
#include "dataplane/model/tokenizer_spec.h"

namespace tidepool::model::internal {

struct PostProcessor {
  std::vector<int32_t> prefix_ids;
  std::vector<int32_t> suffix_ids;
};

// All take the whole file. Errors: kInvalidArgument, kUnimplemented.
StatusOr<std::vector<NormalizerStep>> ParseNormalizer(const JsonField& root);
StatusOr<std::vector<PretokenizerStep>> ParsePretokenizer(
    const JsonField& root);
StatusOr<PostProcessor> ParsePostProcessor(const JsonField& root);
// nullopt: the file has none, tokens are joined with spaces.
StatusOr<std::optional<std::vector<DecoderStep>>> ParseDecoder(
    const JsonField& root);

}  // namespace tidepool::model::internal
