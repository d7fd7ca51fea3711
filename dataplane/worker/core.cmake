# The protocol core: protobuf messages, no sockets, no threads.
tidepool_library(worker_core
  SOURCES worker_core_streams.cc
  HEADERS worker_core.h worker_core_streams.h
  DEPS tidepool::engine tidepool::transfer tidepool::proto)
