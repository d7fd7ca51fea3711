# How every target of the tree is made: warnings, sanitizers, header checks,
# and one function per kind of target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)

add_library(tidepool_flags INTERFACE)
# Results are part of our contract (numerics ids), so the compiler may neither
# contract a*b+c into an FMA nor reorder sums on its own.
target_compile_options(tidepool_flags INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Wimplicit-fallthrough -Wunused
  -Wno-missing-field-initializers  # designated initializers name what differs
  -ffp-contract=off)
target_include_directories(tidepool_flags INTERFACE ${PROJECT_SOURCE_DIR})
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(tidepool_flags INTERFACE -Wthread-safety -Wno-unused-command-line-argument)
endif()
if(TIDEPOOL_SANITIZER STREQUAL "address")
  target_compile_options(tidepool_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(tidepool_flags INTERFACE -fsanitize=address,undefined)
elseif(TIDEPOOL_SANITIZER STREQUAL "thread")
  target_compile_options(tidepool_flags INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(tidepool_flags INTERFACE -fsanitize=thread)
elseif(NOT TIDEPOOL_SANITIZER STREQUAL "")
  message(FATAL_ERROR "TIDEPOOL_SANITIZER must be empty, address or thread, not ${TIDEPOOL_SANITIZER}")
endif()

# tidepool_library(base SOURCES a.cc HEADERS a.h DEPS absl::status)
# makes `tidepool_base`, alias `tidepool::base`. HEADERS are public and each
# must compile alone (target `all_verify_interface_header_sets`).
function(tidepool_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;DEPS" ${ARGN})
  set(target tidepool_${name})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(tidepool::${name} ALIAS ${target})
  target_sources(${target} ${scope} FILE_SET HEADERS
    BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(${target} ${scope} tidepool_flags Threads::Threads ${ARG_DEPS})
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# tidepool_binary(tidepool-worker SOURCES main.cc DEPS tidepool::worker [SMALL])
# SMALL: its memory counts; see cmake/link-archives.
function(tidepool_binary name)
  cmake_parse_arguments(ARG "SMALL" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE tidepool_flags ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  if(ARG_SMALL)
    set(launcher ${PROJECT_SOURCE_DIR}/cmake/link-archives)
    set_target_properties(${name} PROPERTIES CXX_LINKER_LAUNCHER ${launcher} LINK_DEPENDS ${launcher})
  endif()
endfunction()

# tidepool_test(base_config_test SOURCES config_test.cc DEPS tidepool::base
#               [LABEL unit|sim|integration|gpu|nightly] [TIMEOUT seconds]
#               [THREADS] [ARGS …])
# THREADS: worth running under the thread sanitizer (target `thread_tests`).
add_custom_target(thread_tests)
function(tidepool_test name)
  if(NOT TIDEPOOL_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "THREADS" "LABEL;TIMEOUT" "SOURCES;DEPS;ARGS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE tidepool_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TIDEPOOL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(ARG_THREADS)
    list(APPEND ARG_LABEL threads)
    add_dependencies(thread_tests ${name})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT}
    SKIP_RETURN_CODE 77)
endfunction()

# tidepool_bench(engine_bench SOURCES gemm_bench.cc DEPS tidepool::engine
#                [SMOKE_ARGS …])
# A Google Benchmark program; SMOKE_ARGS is the small form run among the tests.
function(tidepool_bench name)
  if(NOT TIDEPOOL_TESTS OR TIDEPOOL_SANITIZER)  # they would measure the latter
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;SMOKE_ARGS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE tidepool_flags ${ARG_DEPS} benchmark::benchmark)
  target_compile_definitions(${name} PRIVATE TIDEPOOL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT ARG_SMOKE_ARGS)
    set(ARG_SMOKE_ARGS --benchmark_min_time=0.01)
  endif()
  add_test(NAME ${name}_smoke COMMAND ${name} ${ARG_SMOKE_ARGS})
  set_tests_properties(${name}_smoke PROPERTIES LABELS bench TIMEOUT 600)
endfunction()

# tidepool_fuzz(safetensors_fuzz SOURCES safetensors_fuzz.cc DEPS tidepool::model
#               CORPUS corpus/safetensors)
# A libFuzzer target, built by clang only (target `fuzzers`); 20 s of it run
# among the tests.
add_custom_target(fuzzers)
function(tidepool_fuzz name)
  if(NOT TIDEPOOL_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  add_dependencies(fuzzers ${name})
  target_link_libraries(${name} PRIVATE tidepool_flags ${ARG_DEPS})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set(corpus_args "")
  if(ARG_CORPUS)
    set(corpus_args ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CORPUS})
  endif()
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${name}_new)
  add_test(NAME ${name} COMMAND ${name} -max_total_time=20 -timeout=10 -rss_limit_mb=2048
    ${CMAKE_CURRENT_BINARY_DIR}/${name}_new ${corpus_args})
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 600)
endfunction()

if(TIDEPOOL_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
