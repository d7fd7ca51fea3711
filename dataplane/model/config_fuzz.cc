// Any bytes as config.json or generation_config.json: an error or a
// configuration whose tensors can be named and counted.
#include <cstdint>
#include <limits>
#include <string_view>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"
#include "dataplane/model/config.h"

namespace {

// The invariant that ModelConfig promises.
void CheckTensorsFit(const tidepool::model::ModelConfig& config) {
  int64_t total = 0;
  for (const auto& spec : tidepool::model::TensorsOf(config)) {
    int64_t elements = 1;
    for (const int64_t dimension : spec.shape) {
      CHECK(dimension > 0);
      const auto product = tidepool::CheckedMul(elements, dimension);
      CHECK(product.has_value());
      elements = *product;
    }
    const auto sum = tidepool::CheckedAdd(total, elements);
    CHECK(sum.has_value());
    total = *sum;
  }
  CHECK(total <= std::numeric_limits<int64_t>::max() / 4);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = tidepool::model::ParseModelConfig(text);
  if (config.ok()) {
    CHECK(config->num_heads % config->num_kv_heads == 0);
    CHECK(config->head_dim % 2 == 0);
    CheckTensorsFit(*config);
  }
  (void)tidepool::model::ParseGenerationDefaults(text);
  return 0;
}
