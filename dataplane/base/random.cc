#include "dataplane/base/random.h"

#include <sys/random.h>

#include "dataplane/base/check.h"

namespace tidepool {

uint64_t SystemRandom64() {
  uint64_t value = 0;
  CHECK(getrandom(&value, sizeof(value), 0) == sizeof(value));
  return value;
}

}  // namespace tidepool
