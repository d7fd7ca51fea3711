// Between our errors, times and gRPC's.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/time.h>

#include <string>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"

namespace tidepool::worker {

inline grpc::Status ToGrpc(const Status& status) {
  return {static_cast<grpc::StatusCode>(status.raw_code()),
          std::string(MessageOf(status))};
}

inline Status FromGrpc(const grpc::Status& status) {
  return Status(static_cast<Code>(status.error_code()), status.error_message());
}

// On the monotonic clock, so that a jump of the wall clock changes nothing.
inline gpr_timespec ToGrpc(TimePoint deadline) {
  const Duration left = deadline - Clock::Monotonic().Now();
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(left.count(), GPR_TIMESPAN));
}

}  // namespace tidepool::worker
