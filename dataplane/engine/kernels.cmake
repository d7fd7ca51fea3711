# The engine's arithmetic.
tidepool_library(engine_kernels
  HEADERS kv_layout.h sampling_params.h step_plan.h
  DEPS tidepool::base)
