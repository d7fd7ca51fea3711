#include "dataplane/model/weights.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "dataplane/model/weights_internal.h"

namespace tidepool::model {

int64_t TensorView::num_elements() const {
  int64_t count = 1;
  for (const int64_t dimension : shape) count *= dimension;
  return count;
}

Status CheckShape(std::string_view source, std::string_view tensor,
                  std::span<const int64_t> shape,
                  std::span<const int64_t> expected) {
  if (std::ranges::equal(shape, expected)) return OkStatus();
  return InvalidArgument("{}: tensor {:?}: shape [{}] is not the expected [{}]",
                         source, tensor, fmt::join(shape, ", "),
                         fmt::join(expected, ", "));
}

void AppendTensor(Sha256& digest, std::string_view name, std::string_view dtype,
                  std::span<const int64_t> shape) {
  for (const std::string_view text : {name, dtype}) {
    digest.UpdateU64(text.size());
    digest.Update(text);
  }
  digest.UpdateU64(shape.size());
  for (const int64_t dimension : shape)
    digest.UpdateU64(static_cast<uint64_t>(dimension));
}

}  // namespace tidepool::model
