// One Session stream from the conductor to a worker.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "dataplane/base/status.h"
#include "dataplane/rpc/security.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::conductor {

// Reading is by credit: one message is delivered, the next is read when the
// consumer asks, so that a slow consumer slows the worker and nothing piles up
// here. Thread-safe.
class WorkerStream {
 public:
  // Called on gRPC's threads. A call under way while Close is called may still
  // come: consumers drop what a closed stream brings.
  struct Events {
    std::function<void(worker::v1::SessionResponse)> message;
    // The session was refused, as it is while the model loads: what the worker
    // said when asked about itself. `disconnected` follows.
    std::function<void(worker::v1::DescribeResponse)> described;
    // The stream could not be opened, or ended. Last.
    std::function<void(Status)> disconnected;
  };

  virtual ~WorkerStream() = default;

  // Never blocks. With a full queue the stream ends (kResourceExhausted).
  virtual void Send(worker::v1::SessionRequest message) = 0;
  // The consumer is done with the last message. The first read needs no asking.
  virtual void ReadNext() = 0;
  // Ends the stream; `disconnected` is not called for it.
  virtual void Close(std::string_view reason) = 0;
};

// Opens streams, which it outlives. Implemented over gRPC, and by tests.
class WorkerDialer {
 public:
  virtual ~WorkerDialer() = default;
  // Returns at once; the stream can be written to, and connects behind it.
  virtual std::shared_ptr<WorkerStream> Dial(const std::string& address,
                                             WorkerStream::Events events) = 0;
};

struct GrpcDialerOptions {
  rpc::Security security;
  size_t send_queue_max = 16384;     // messages of one stream
  int message_bytes_max = 64 << 20;  // of one message
};
std::unique_ptr<WorkerDialer> MakeGrpcDialer(const GrpcDialerOptions& options);

}  // namespace tidepool::conductor
