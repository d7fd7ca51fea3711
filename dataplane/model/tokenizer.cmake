# Text to tokens and back.
find_package(simdjson REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

tidepool_library(model_tokenizer
  SOURCES bpe.cc bpe_bytes.cc bpe_cache.cc bpe_merge.cc bpe_vocabulary.cc
          detokenizer.cc detokenizer_stages.cc
          pretokenizer.cc pretokenizer_match.cc pretokenizer_regex.cc
          pretokenizer_split.cc pretokenizer_translate.cc
          tokenizer.cc tokenizer_added.cc tokenizer_impl.cc tokenizer_json.cc
          tokenizer_normalizer.cc tokenizer_spec.cc tokenizer_steps.cc
          tokenizer_vocabulary.cc unicode.cc
  HEADERS detokenizer.h tokenizer.h
  DEPS tidepool::model_files)
target_link_libraries(tidepool_model_tokenizer PRIVATE
  absl::function_ref simdjson::simdjson PkgConfig::PCRE2 PkgConfig::UTF8PROC)

tidepool_test(model_tokenizer_golden_test SOURCES tokenizer_golden_test.cc
  DEPS tidepool::model_tokenizer simdjson::simdjson)

tidepool_bench(model_tokenizer_bench SOURCES tokenizer_bench.cc
  DEPS tidepool::model_tokenizer)
tidepool_test(model_tokenizer_test SOURCES tokenizer_test.cc
  DEPS tidepool::model_tokenizer THREADS)
tidepool_test(model_detokenizer_test SOURCES detokenizer_test.cc
  DEPS tidepool::model_tokenizer)
tidepool_test(model_pretokenizer_test SOURCES pretokenizer_test.cc
  DEPS tidepool::model_tokenizer absl::function_ref)
tidepool_test(model_bpe_test SOURCES bpe_test.cc
  DEPS tidepool::model_tokenizer absl::function_ref)
tidepool_test(model_unicode_test SOURCES unicode_test.cc
  DEPS tidepool::model_tokenizer)

tidepool_fuzz(model_tokenizer_fuzz SOURCES tokenizer_fuzz.cc
  DEPS tidepool::model_tokenizer CORPUS testdata/tokenizer)
tidepool_fuzz(model_tokenizer_encode_fuzz SOURCES tokenizer_encode_fuzz.cc
  DEPS tidepool::model_tokenizer)
if(TARGET model_tokenizer_encode_fuzz)
  target_compile_definitions(model_tokenizer_encode_fuzz PRIVATE
    TIDEPOOL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
