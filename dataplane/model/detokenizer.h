// Text of tokens that arrive one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "dataplane/model/tokenizer.h"

namespace tidepool::model {

// Emits text as soon as no later token can change it, never part of a
// character: what Append and Finish return, joined, is Decode of all ids.
// A run of byte tokens ("<0xE2>") of a SentencePiece-style vocabulary becomes
// certain only at its end, since one wrong byte turns all of it into U+FFFD;
// nothing else is held back beyond one character or pattern.
// Externally synchronized; the tokenizer must outlive it.
class IncrementalDetokenizer {
 public:
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);
  ~IncrementalDetokenizer();
  IncrementalDetokenizer(IncrementalDetokenizer&&) noexcept;
  IncrementalDetokenizer& operator=(IncrementalDetokenizer&&) noexcept;

  // Takes the tokens in front of the text without returning theirs (usually
  // the prompt), so that what follows reads as a continuation: its first word
  // keeps its space. A character that began in them is emitted with its end.
  void Skip(std::span<const int32_t> ids);

  // The text that this token makes certain, often empty. Ids without a token
  // have no text.
  std::string Append(int32_t id);

  // What was held back, incomplete characters as U+FFFD. The object then
  // starts afresh.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tidepool::model
