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
tidepool_test(model_safetensors_header_test SOURCES safetensors_header_test.cc
  DEPS tidepool::model_weights)
tidepool_test(model_fixtures_test SOURCES fixtures_test.cc
  DEPS tidepool::model_weights)

if(TIDEPOOL_FUZZERS)
  # Without coverage of the parsers themselves the fuzzers would search blindly.
  target_compile_options(tidepool_model_weights PRIVATE -fsanitize=fuzzer-no-link)
endif()
tidepool_fuzz(safetensors_fuzz SOURCES safetensors_fuzz.cc
  DEPS tidepool::model_weights CORPUS testdata/fuzz/safetensors)
tidepool_fuzz(config_fuzz SOURCES config_fuzz.cc
  DEPS tidepool::model_weights CORPUS testdata/fuzz/config)
