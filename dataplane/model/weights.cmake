# Configuration, weights and where both come from.
find_package(nlohmann_json REQUIRED)

tidepool_library(model_weights
  HEADERS config.h weights.h
  DEPS tidepool::base)
