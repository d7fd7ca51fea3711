tidepool_library(engine_emulated
  SOURCES emulated_runner.cc perf_model.cc
  HEADERS emulated_runner.h perf_model.h
  DEPS tidepool::base yaml-cpp)
tidepool_test(engine_emulated_runner_test SOURCES emulated_runner_test.cc
  DEPS tidepool::engine_emulated tidepool::engine_core)
tidepool_test(engine_perf_model_test SOURCES perf_model_test.cc
  DEPS tidepool::engine_emulated)
