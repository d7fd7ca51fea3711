# The engine's arithmetic. Each kernels_*.cc is compiled for its instruction
# set; nothing else is, so that the rest runs on every processor of the
# architecture.
set(kernel_sources kernels_portable.cc)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND kernel_sources kernels_avx2.cc kernels_avx512.cc)
  set_source_files_properties(kernels_avx2.cc PROPERTIES
    COMPILE_OPTIONS "-O3;-mavx2;-mfma")
  set_source_files_properties(kernels_avx512.cc PROPERTIES
    COMPILE_OPTIONS
    "-O3;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512bf16;-mfma;-mprefer-vector-width=512")
endif()
set_source_files_properties(kernels_portable.cc PROPERTIES
  COMPILE_OPTIONS "-O3")

tidepool_library(engine_kernels
  SOURCES ${kernel_sources} cpu_runner.cc kernels.cc numerics.cc
          packed_weights.cc rope_table.cc thread_pool.cc transformer.cc
          transformer_weights.cc
  HEADERS cpu_runner.h kernels.h kv_layout.h numerics.h packed_weights.h
          rope_table.h sampling_params.h step_plan.h thread_pool.h
          transformer.h transformer_weights.h
  DEPS tidepool::base tidepool::model_weights tidepool::engine_sampler)

foreach(part IN ITEMS attention gemm numerics ops)
  tidepool_test(engine_${part}_test
    SOURCES ${part}_test.cc DEPS tidepool::engine_kernels)
endforeach()
tidepool_test(engine_thread_pool_test
  SOURCES thread_pool_test.cc DEPS tidepool::engine_kernels THREADS)
foreach(part IN ITEMS cpu_runner cpu_runner_invariance)
  tidepool_test(engine_${part}_test
    SOURCES ${part}_test.cc DEPS tidepool::engine_kernels TIMEOUT 300)
endforeach()
find_package(nlohmann_json REQUIRED)  # reads golden files
tidepool_test(engine_cpu_runner_golden_test
  SOURCES cpu_runner_golden_test.cc
  DEPS tidepool::engine_kernels nlohmann_json::nlohmann_json)

tidepool_bench(engine_bench
  SOURCES engine_bench.cc engine_bench_ceilings.cc
  DEPS tidepool::engine_kernels
  SMOKE_ARGS --smoke --benchmark_min_time=0.01)
