// Any text through the small tokenizers: ids are valid, byte-level decoding
// gives the text back, and streams decode as wholes do.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/check.h"
#include "dataplane/model/detokenizer.h"
#include "dataplane/model/tokenizer.h"

namespace tidepool::model {
namespace {

struct Subject {
  std::unique_ptr<Tokenizer> tokenizer;
  bool lossless = false;  // text comes back from its tokens
};

const std::vector<Subject>& Subjects() {
  static const auto* subjects = [] {
    auto* result = new std::vector<Subject>;
    for (const auto& [name, lossless] :
         {std::pair("gpt2", true), std::pair("llama3", true),
          std::pair("qwen2", false), std::pair("o200k", true),
          std::pair("sentencepiece", false), std::pair("metaspace", false),
          std::pair("options", false), std::pair("words", false)}) {
      auto tokenizer = Tokenizer::Load(std::string(TIDEPOOL_SOURCE_DIR) +
                                       "/dataplane/model/testdata/tokenizer/" +
                                       name + "/tokenizer.json");
      CHECK(tokenizer.ok());
      result->push_back({*std::move(tokenizer), lossless});
    }
    return result;
  }();
  return *subjects;
}

void Check(const Subject& subject, std::string_view text) {
  const Tokenizer& tokenizer = *subject.tokenizer;
  const auto ids = tokenizer.Encode(text, {.add_special_tokens = false});
  if (!ids.ok()) {
    CHECK(ids.status().code() == Code::kInvalidArgument);
    return;
  }
  const std::string decoded = tokenizer.Decode(*ids, false);
  if (subject.lossless) CHECK(decoded == text);
  IncrementalDetokenizer detokenizer(tokenizer, false);
  std::string streamed;
  for (const int32_t id : *ids) {
    CHECK(id >= 0 && id < tokenizer.vocab_size());
    streamed += detokenizer.Append(id);
  }
  CHECK(streamed + detokenizer.Finish() == decoded);
}

}  // namespace
}  // namespace tidepool::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& subject : tidepool::model::Subjects()) {
    tidepool::model::Check(subject, text);
  }
  return 0;
}
