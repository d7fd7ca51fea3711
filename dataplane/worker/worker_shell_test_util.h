// Worker processes, and a conductor that drives them by hand.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::worker {

// A tidepool-worker with ephemeral ports, killed at the end if it still runs.
class WorkerProcess {
 public:
  explicit WorkerProcess(std::vector<std::string> arguments);
  ~WorkerProcess();

  const std::string& control_address() const { return control_address_; }
  void Signal(int signal) const;
  // The exit status, as of waitpid.
  int Wait();
  // The whole answer to a GET on its HTTP port.
  std::string Get(const std::string& path) const;
  // The sample of `/metrics` whose line starts with `name`.
  double Metric(const std::string& name) const;

 private:
  pid_t pid_ = -1;
  std::string control_address_;
  int metrics_port_ = 0;
};

// Runs the binary to its end; what it wrote to standard error.
std::string RunWorker(std::vector<std::string> arguments, int& exit_status);

// One conductor's stream to one worker.
class WorkerClient {
 public:
  WorkerClient(const std::string& address, const std::string& conductor_id);
  ~WorkerClient();

  const v1::DescribeResponse& description() const { return description_; }
  const std::string& address() const { return address_; }

  void Submit(const v1::RequestHeader& header,
              const v1::GenerationRequest& request, const v1::DecodePeer* peer);
  void Cancel(const v1::RequestHeader& header);
  // Waits until the worker ends the stream.
  grpc::Status AwaitEnd();
  // The state in the answer, or, if it refuses, one of role UNSPECIFIED.
  v1::RoleState SetRole(v1::Role role, uint64_t sequence,
                        uint32_t drain_timeout_ms);
  // Waits until a session of it was told that this is its role.
  void AwaitRole(v1::Role role);

  struct Ending {
    std::vector<int32_t> tokens;
    v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
    v1::RequestFailure failure;  // if it failed
    bool handed_over = false;
    std::string transport;
  };
  // Of one request: until it finishes, fails or is handed over, or at least
  // `min_tokens` have come.
  Ending Await(const std::string& request_id, size_t min_tokens = ~size_t{0});

 private:
  void Read();
  void Write(v1::SessionRequest message);

  const std::string address_, conductor_id_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  v1::DescribeResponse description_;
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>>
      stream_;
  uint64_t next_sequence_ = 1;
  std::thread reader_;

  Mutex mutex_;
  std::map<std::string, Ending> endings_ ABSL_GUARDED_BY(mutex_);
  v1::Role role_ ABSL_GUARDED_BY(mutex_) = v1::ROLE_UNSPECIFIED;  // last told
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidepool::worker
