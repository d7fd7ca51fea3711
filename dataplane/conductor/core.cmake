# The protocol core: protobuf messages, no sockets, no threads.
tidepool_library(conductor_core
  SOURCES conductor_core.cc conductor_core_attempts.cc conductor_core_fleet.cc
          conductor_core_record.cc
  HEADERS conductor_core.h
  DEPS tidepool::base tidepool::scheduling tidepool::proto)
tidepool_test(conductor_core_test
  SOURCES conductor_core_test.cc conductor_core_roles_test.cc
  DEPS tidepool::conductor_core)
