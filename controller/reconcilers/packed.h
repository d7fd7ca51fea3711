// Objects as the cluster cache keeps them: everything that is known of one in a
// single piece of memory, less than half of what its fields take one by one.
#pragma once

#include <memory>

#include "controller/kube/client.h"
#include "controller/reconcilers/observed.h"

namespace tidepool::reconcilers {

// T: CustomResource, Child or PodView. Immutable.
template <typename T>
class Packed {
 public:
  explicit Packed(const T& object);

  std::shared_ptr<const T> Unpack() const;
  kube::ObjectKeyView key() const;

 private:
  std::unique_ptr<const char[]> bytes_;
};

extern template class Packed<CustomResource>;
extern template class Packed<Child>;
extern template class Packed<PodView>;

}  // namespace tidepool::reconcilers
