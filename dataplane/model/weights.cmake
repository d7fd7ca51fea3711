# Configuration, weights and where both come from.
find_package(nlohmann_json REQUIRED)
find_package(CURL REQUIRED)

# What every part reads its files with.
tidepool_library(model_files SOURCES file_io.cc HEADERS file_io.h
  DEPS tidepool::base)

tidepool_library(model_weights
  SOURCES config.cc dummy_weights.cc mapped_file.cc safetensors.cc
          safetensors_header.cc safetensors_writer.cc strict_json.cc tensors.cc
          weights.cc
  HEADERS config.h mapped_file.h safetensors_header.h strict_json.h weights.h
          weights_internal.h
  DEPS tidepool::model_files nlohmann_json::nlohmann_json xxhash)

# Apart from the weights, so that the engine links no network code.
tidepool_library(model_source
  SOURCES http_get.cc hub_api.cc hub_client.cc hub_download.cc model_source.cc
          part_file.cc retry.cc snapshot.cc
  HEADERS http_get.h hub_api.h hub_client.h hub_download.h model_source.h
          part_file.h retry.h snapshot.h
  DEPS tidepool::model_weights CURL::libcurl OpenSSL::Crypto)
target_compile_definitions(tidepool_model_source PRIVATE
  TIDEPOOL_MODELS_SOURCE_DIR="${PROJECT_SOURCE_DIR}/models")

tidepool_binary(tidepool-dummy-model SOURCES dummy_model_main.cc
  DEPS tidepool::model_weights)

tidepool_test(model_config_test SOURCES config_test.cc
  DEPS tidepool::model_weights)
tidepool_test(model_weights_test SOURCES weights_test.cc
  DEPS tidepool::model_weights)
tidepool_test(model_safetensors_header_test SOURCES safetensors_header_test.cc
  DEPS tidepool::model_weights)
tidepool_test(model_fixtures_test SOURCES fixtures_test.cc
  DEPS tidepool::model_weights)
tidepool_test(model_source_test SOURCES hub_api_test.cc model_source_test.cc
  retry_test.cc
  DEPS tidepool::model_source)
tidepool_test(model_hub_download_test
  SOURCES fake_hub.cc hub_download_test.cc scripted_http_server.cc
  DEPS tidepool::model_source)

if(TIDEPOOL_FUZZERS)
  # Without coverage of the parsers themselves the fuzzers would search blindly.
  target_compile_options(tidepool_model_weights PRIVATE -fsanitize=fuzzer-no-link)
endif()
tidepool_fuzz(safetensors_fuzz SOURCES safetensors_fuzz.cc
  DEPS tidepool::model_weights CORPUS testdata/fuzz/safetensors)
tidepool_fuzz(config_fuzz SOURCES config_fuzz.cc
  DEPS tidepool::model_weights CORPUS testdata/fuzz/config)
