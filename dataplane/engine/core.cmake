# What plans the arithmetic: sampling, pages and the continuous batch.
tidepool_library(engine_sampler
  SOURCES sampler.cc sampler_math.cc sampling_params.cc
  HEADERS sampler.h
  DEPS tidepool::base)
# Loops over the vocabulary; the compiler vectorizes them only from -O3 on.
set_source_files_properties(sampler_math.cc PROPERTIES COMPILE_OPTIONS -O3)
tidepool_test(engine_sampler_test SOURCES sampler_test.cc
  DEPS tidepool::engine_sampler)
tidepool_test(engine_sampling_params_test SOURCES sampling_params_test.cc
  DEPS tidepool::engine_sampler)
tidepool_bench(engine_sampler_bench SOURCES sampler_bench.cc
  DEPS tidepool::engine_sampler)

tidepool_library(engine_core
  SOURCES engine_core.cc engine_core_stats.cc engine_core_step.cc
  HEADERS engine_core.h page_pool.h
  DEPS tidepool::engine_sampler tidepool::prefix absl::flat_hash_map)
tidepool_test(engine_core_test SOURCES engine_core_test.cc
  DEPS tidepool::engine_core)
tidepool_test(engine_core_sim_test SOURCES engine_core_sim_test.cc
  DEPS tidepool::engine_core LABEL sim)
tidepool_test(engine_core_alloc_test SOURCES engine_core_alloc_test.cc
  DEPS tidepool::engine_core)
tidepool_bench(engine_core_bench SOURCES engine_core_bench.cc
  DEPS tidepool::engine_core)
