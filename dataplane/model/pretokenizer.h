// Cuts text into the words that BPE sees.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "dataplane/base/status.h"
#include "dataplane/model/bpe.h"
#include "dataplane/model/tokenizer_spec.h"

namespace tidepool::model::internal {

// A stretch of text: a view, and how far memory behind its start may be read
// (for wide loads), and whether it is where the original text starts.
struct Piece {
  std::string_view text;
  size_t readable = 0;
  bool first = false;

  Piece Part(size_t start, size_t end) const {
    return {text.substr(start, end - start), readable - start,
            first && start == 0};
  }
};

// Takes a piece, not empty; the view holds only during the call. An error
// stops the cutting.
using PieceSink = absl::FunctionRef<Status(const Piece&)>;

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
