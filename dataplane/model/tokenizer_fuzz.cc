// Loading whatever claims to be a tokenizer.json, and using what loads.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "dataplane/model/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tidepool::model::Tokenizer;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::Parse(json);
  if (!tokenizer.ok()) return 0;
  const auto ids = (*tokenizer)->Encode("The 12 caf\u00E9s' <s>  x\n");
  if (!ids.ok()) return 0;
  for (const int32_t id : *ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
  }
  (*tokenizer)->Decode(*ids, true);
  return 0;
}
