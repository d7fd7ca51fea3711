# The protocol core: protobuf messages, no sockets, no threads.
tidepool_library(conductor_core
  HEADERS conductor_core.h
  DEPS tidepool::scheduling tidepool::proto)
