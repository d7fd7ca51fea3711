# Configuration, weights and where both come from.
find_package(nlohmann_json REQUIRED)

tidepool_library(model_weights
  SOURCES config.cc dummy_weights.cc file_io.cc mapped_file.cc safetensors.cc
          safetensors_header.cc safetensors_writer.cc strict_json.cc tensors.cc
          weights.cc
  HEADERS config.h file_io.h mapped_file.h safetensors_header.h strict_json.h
          weights.h weights_internal.h
  DEPS tidepool::base nlohmann_json::nlohmann_json xxhash)

tidepool_test(model_config_test SOURCES config_test.cc
  DEPS tidepool::model_weights)
tidepool_test(model_weights_test SOURCES weights_test.cc
  DEPS tidepool::model_weights)
