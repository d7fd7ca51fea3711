// Changes text before it is cut into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/model/tokenizer_spec.h"

namespace tidepool::model::internal {

// Immutable and thread-safe after creation.
class Normalizer {
 public:
  // Errors: those of regular expressions.
  static StatusOr<std::unique_ptr<Normalizer>> Create(
      const std::vector<NormalizerStep>& steps);
  ~Normalizer();

  // Normalizes `text`, valid UTF-8: the result is `text` itself where nothing
  // changes, or a view of `storage`. Errors: kResourceExhausted from a regular
  // expression, or if the text grows beyond Tokenizer::kTextBytesMax.
  StatusOr<std::string_view> Run(std::string_view text,
                                 std::string& storage) const;

  // True if Run may take characters from the start of a text.
  bool strips_start() const { return strips_start_; }

 private:
  struct Step;
  Normalizer();

  std::vector<Step> steps_;
  bool strips_start_ = false;
};

}  // namespace tidepool::model::internal
