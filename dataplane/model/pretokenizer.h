// Cuts text into the words that BPE sees.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "dataplane/base/status.h"
#include "dataplane/model/bpe.h"
#include "dataplane/model/bpe_piece.h"
#include "dataplane/model/tokenizer_spec.h"

namespace tidepool::model::internal {

// Takes 1 to kPieceBatch pieces, none of them empty; the views hold only during
// the call. An error stops the cutting.
using PieceSink = absl::FunctionRef<Status(std::span<const Piece>)>;

// Immutable and thread-safe after creation.
class Pretokenizer {
 public:
  // Errors: those of regular expressions; kUnimplemented for steps after
  // ByteLevel.
  static StatusOr<std::unique_ptr<Pretokenizer>> Create(
      const std::vector<PretokenizerStep>& steps);
  ~Pretokenizer();

  WordForm word_form() const { return form_; }

  // Gives the words of `piece`, valid UTF-8, to `sink` in order. Errors: what
  // `sink` returns; kResourceExhausted from a regular expression.
  Status Run(const Piece& piece, PieceSink sink) const;

  // One step at work.
  class Stage;

 private:
  Pretokenizer();
  Status RunFrom(size_t stage, const Piece& piece, PieceSink sink) const;

  std::vector<std::unique_ptr<Stage>> stages_;
  WordForm form_ = WordForm::kText;
};

}  // namespace tidepool::model::internal
