# The protocol core: protobuf messages, no sockets, no threads.
tidepool_library(worker_core
  SOURCES worker_core.cc worker_core_convert.cc worker_core_handover.cc
          worker_core_receive.cc worker_core_role.cc worker_core_streams.cc
          worker_core_tasks.cc
  HEADERS worker_core.h worker_core_streams.h
  DEPS tidepool::base tidepool::engine_core tidepool::prefix tidepool::transfer
       tidepool::proto)
tidepool_test(worker_core_streams_test SOURCES worker_core_streams_test.cc
  DEPS tidepool::worker_core)
tidepool_test(worker_core_test
  SOURCES worker_core_test.cc worker_core_peers_test.cc worker_core_role_test.cc
  DEPS tidepool::worker_core tidepool::fakes)
