# What plans the arithmetic: sampling, pages and the continuous batch.
tidepool_library(engine_sampler
  SOURCES sampler.cc sampler_math.cc sampling_params.cc
  HEADERS sampler.h
  DEPS tidepool::base)
# Loops over the vocabulary; the compiler vectorizes them only from -O3 on.
set_source_files_properties(sampler_math.cc PROPERTIES COMPILE_OPTIONS -O3)
