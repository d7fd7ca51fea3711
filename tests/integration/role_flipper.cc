// Changes the roles of running workers, one after another, as a planner would:
//   role_flipper COUNT SEED DRAIN_MS_MAX PAUSE_MS_MAX ADDRESS...
// Each flip ends before the next begins. Prints one line of JSON: the flips,
// and the milliseconds from the call until the worker said that it serves.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/base/random.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool {
namespace {

namespace wire = ::tidepool::worker::v1;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kFlipTimeout(60);
constexpr std::chrono::milliseconds kPollInterval(1);

struct Target {
  std::string address;
  std::unique_ptr<wire::WorkerService::Stub> stub;
  uint64_t incarnation = 0;
};

wire::DescribeResponse Describe(const Target& target) {
  grpc::ClientContext context;
  wire::DescribeResponse description;
  const grpc::Status status = target.stub->Describe(&context, {}, &description);
  if (!status.ok()) {
    fmt::print(stderr, "{}: {}\n", target.address, status.error_message());
    std::exit(1);
  }
  return description;
}

// The time it took.
std::chrono::duration<double, std::milli> Flip(Target& target,
                                               uint64_t sequence,
                                               uint32_t drain_ms) {
  const wire::DescribeResponse before = Describe(target);
  if (target.incarnation == 0) target.incarnation = before.incarnation();
  if (target.incarnation != before.incarnation()) {
    fmt::print(stderr, "{}: another process\n", target.address);
    std::exit(1);
  }
  wire::SetRoleRequest request;
  request.set_role(before.role() == wire::ROLE_PREFILL ? wire::ROLE_DECODE
                                                       : wire::ROLE_PREFILL);
  request.mutable_epoch()->set_term(1);
  request.mutable_epoch()->set_sequence(sequence);
  request.set_incarnation(target.incarnation);
  request.set_drain_timeout_ms(drain_ms);
  const Clock::time_point start = Clock::now();
  grpc::ClientContext context;
  wire::SetRoleResponse response;
  const grpc::Status status =
      target.stub->SetRole(&context, request, &response);
  if (!status.ok()) {
    fmt::print(stderr, "{}: {}\n", target.address, status.error_message());
    std::exit(1);
  }
  wire::RoleState state = response.state();
  while (state.role() != request.role()) {
    if (Clock::now() - start > kFlipTimeout) {
      fmt::print(stderr, "{}: no end of the switch\n", target.address);
      std::exit(1);
    }
    std::this_thread::sleep_for(kPollInterval);
    state = Describe(target).role_state();
  }
  return Clock::now() - start;
}

int Main(int argc, char** argv) {
  if (argc < 6) {
    fmt::print(stderr,
               "usage: role_flipper COUNT SEED DRAIN_MS_MAX PAUSE_MS_MAX "
               "ADDRESS...\n");
    return 2;
  }
  const uint64_t count = std::strtoull(argv[1], nullptr, 10);
  Random random(std::strtoull(argv[2], nullptr, 10));
  const uint64_t drain_ms_max = std::strtoull(argv[3], nullptr, 10);
  const uint64_t pause_ms_max = std::strtoull(argv[4], nullptr, 10);
  std::vector<Target> targets;
  for (int i = 5; i < argc; ++i) {
    targets.push_back({.address = argv[i],
                       .stub = wire::WorkerService::NewStub(grpc::CreateChannel(
                           argv[i], grpc::InsecureChannelCredentials()))});
  }
  std::vector<double> times;
  for (uint64_t i = 1; i <= count; ++i) {
    Target& target = targets[random.Below(targets.size())];
    times.push_back(
        Flip(target, i, static_cast<uint32_t>(random.Below(drain_ms_max + 1)))
            .count());
    std::this_thread::sleep_for(
        std::chrono::milliseconds(random.Below(pause_ms_max + 1)));
  }
  std::ranges::sort(times);
  const auto at = [&](double share) {
    return times[static_cast<size_t>(share *
                                     static_cast<double>(times.size() - 1))];
  };
  fmt::print(
      "{{\"flips\":{},\"p50_ms\":{:.2f},\"p99_ms\":{:.2f},"
      "\"max_ms\":{:.2f}}}\n",
      times.size(), at(0.5), at(0.99), times.back());
  return 0;
}

}  // namespace
}  // namespace tidepool

int main(int argc, char** argv) { return tidepool::Main(argc, argv); }
